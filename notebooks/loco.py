# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # LOCO: channel objects for network memory
#
# LOCO (Hodgkins, Madler and Izraelevitz) treats machines on an RDMA network as one large machine
# with very weak memory. Its programs use *channels*: named objects whose state lies on all nodes.
# This notebook makes some channels, shows the purpose of LOCO's fences, and runs the paper's
# experiments on a simulated cluster of its machines. It ends with the claims that do not hold.
#
# `rd.fetch` takes an archive (`rd.fetch("r.zip")`), whose figures and verdicts are then shown, or a
# results folder, in which the missing points are measured in quick mode. Here it is what
# `PYRDMA_RESULTS` names, or a temporary folder.

# %%
import tempfile

import pandas as pd

import pyrdma as rd
from pyrdma import figures, registry
from pyrdma.data import Data
from pyrdma.notebook import progress, results_folder, show, verdicts

out = rd.fetch(results_folder())
pd.set_option("display.max_colwidth", 120)

# %% [markdown]
# ## Channels from a script
#
# A channel has an endpoint on each node. Its methods take the node that acts; at a barrier all
# nodes act at once. Figure 1b of the paper has the code of the barrier and of this measurement of
# its latency.

# %%
with rd.Cluster.sim(nodes=5, profile="c6525-25g", seed=1) as cluster:
    barrier = rd.loco.Barrier(cluster, "bar")
    waits = pd.DataFrame([barrier.wait() for _ in range(100)]) / 1000
waits.describe().loc[["mean", "min", "max"]].round(2)

# %% [markdown]
# ## The purpose of the fences
#
# A write completes when the other NIC has the data. At that time the memory may still show the
# old value. The simulator's *weak* memory uses this freedom as far as the specification permits.
# Here a node writes, waits for the completion, and reads the word over a second connection, as
# another thread or node would. The litmus test counts the reads of the old value. A read over the
# connection of the write never returns the old value. LOCO's fence posts such a read, of no
# bytes.

# %%
rows = []
with rd.Cluster.sim(nodes=2, profile="c6525-25g", memory="weak", seed=1) as cluster:
    for queue, get in (("another", "get#other a x"), ("the same", "get a x")):
        test = rd.workload.Litmus(
            locations="x@1 a@0", threads=f"0: put x 1; poll; {get}; poll", observed="a", rounds=4000
        )
        seen = cluster.run(test).frame.groupby("metric")["value"].sum()
        rows.append((queue, int(seen["rounds"]), int(seen[seen.index.str.endswith("|a=0")].sum())))
pd.DataFrame(rows, columns=["read over queue pair", "rounds", "stale"])

# %% [markdown]
# ## Locks and transactions (figure 4)
#
# The first figure has one lock for which all nodes compete, the second transfers between two
# accounts under two locks each. LOCO has two series: the paper's protocol, on which the claims
# are judged, and the protocol with every improvement (`native/systems/loco/README.md`). The MPI
# series is a model of Open MPI's design: a registered window per group of locks, each with a lock
# word per rank. Over shared memory `pyrdma bench` measures Open MPI itself.

# %%
show(out, "loco/fig4_single_lock", "loco/fig4_transactions")

# %% [markdown]
# ## The key-value store (figure 5, section 7.2)
#
# A lookup takes no lock: the index is local, one read fetches the slot, and a checksum detects a
# torn slot. An update takes a ticket lock, writes, fences, and unlocks. The peer is a model of
# Sherman's tree: it reads whole leaves, its lock lies beside the data, write and unlock go in one
# batch, and the threads of a node have a local queue for each lock.

# %%
show(out, "loco/fig5", "loco/sec7_2_fence")

# %% [markdown]
# The paper proves that the store is linearizable (appendix C). Here a checker searches histories
# of random clients for an order that explains them. In weak memory the store and Sherman's tree
# are linearizable only with the fence.

# %%
show(out, "loco/appC_linearizability")

# %% [markdown]
# ## A control loop (appendix B)
#
# Twenty converters and a controller share voltages and duty cycles through owned variables. With
# a longer period the controller sees the effect of its actions later. In the paper the period
# stands in for the latency of messages; the second figure varies that latency.

# %%
show(out, "loco/fig7", "loco/fig7_latency")

# %% [markdown]
# ## Your own sweep
#
# Change the parameters and run the next two cells again. `rd.run` measures the points, shows its
# progress, and returns a tidy table. `CHANGES` fixes axes of the experiment, or parameters of the
# profile (`link.rate_gbps`).

# %%
EXPERIMENT = "loco/fig1b"
CHANGES = {"link.rate_gbps": 100}
SEEDS = range(1, 3)
METRIC, UNIT, OVER = "barrier_p50", "us", "nodes"

# %%
table = rd.run(
    EXPERIMENT,
    set=CHANGES,
    seeds=SEEDS,
    out=tempfile.mkdtemp(),
    jobs=1,
    progress=progress(EXPERIMENT),
)
drawn, ax = figures.new()
figures.line(ax, Data(table), METRIC, OVER, unit=UNIT, label=EXPERIMENT)
ax.set(xlabel=OVER, ylabel=f"{METRIC} ({UNIT})")
ax.legend()
table[table["metric"] == METRIC].groupby(OVER)["value"].describe()

# %% [markdown]
# ## The claims
#
# Missed claims come first. No parameter is tuned to repair a miss. Claims *by construction* hold
# because the experiment was built to hold them; they predict nothing.

# %%
judged = verdicts(out)
ours = judged[judged["experiment"].isin([i for i in registry.ids() if i.startswith("loco/")])]
pd.crosstab(ours["role"], ours["verdict"])

# %%
shown = ["claim", "verdict", "expected", "measured", "unit", "reason"]
ours[ours["verdict"] == "missed"][shown]

# %%
ours[ours["verdict"] == "held"][shown]

# %%
ours[~ours["verdict"].isin(["held", "missed"])][shown]
