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
# LOCO (Hodgkins, Madler and Izraelevitz) sees machines on an RDMA network as one large machine
# with very weak memory, and programs it with *channels*: named objects whose state lies across
# the nodes. This notebook makes some, shows what its fences are for, then runs the paper's
# experiments on a simulated cluster of its machines, and ends with the claims that do not hold.
#
# It measures in quick mode. Results go to a temporary folder; set `PYRDMA_RESULTS` to keep them.

# %%
import pandas as pd

import pyrdma as rd
from pyrdma import claims, registry
from pyrdma.notebook import results_folder, show

out = results_folder()
pd.set_option("display.max_colwidth", 120)

# %% [markdown]
# ## Channels from a script
#
# A channel has an endpoint on each node. Its methods name the node that acts; a barrier lets all
# act at once. The figure of the paper that has the barrier's code (1b) asks for its latency.

# %%
with rd.Cluster.sim(nodes=5, profile="c6525-25g", seed=1) as cluster:
    barrier = rd.loco.Barrier(cluster, "bar")
    waits = pd.DataFrame([barrier.wait() for _ in range(100)]) / 1000
waits.describe().loc[["mean", "min", "max"]].round(2)

# %% [markdown]
# ## What the fences are for
#
# A completion of a write says that the other NIC has it, not that memory shows it. In *weak*
# memory the simulator takes that freedom, within what the specification permits. Here a node
# writes, waits for the completion, and reads the word back over a second connection, as another
# thread or node would. The litmus test counts how often the old value came. Over the connection of
# the write it never does: a read there, even of no bytes, is what LOCO's fence posts.

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
# One lock that all nodes fight for, then transfers between two accounts under two locks each. LOCO
# is there twice: with the paper's protocol, on which the claims are judged, and with all that is
# better (`native/systems/loco/README.md`). The series of Open MPI is a model of its design here: a
# registered window per group of locks, each with a lock word per rank. Over shared memory
# `pyrdma bench` runs the real one.

# %%
show(out, "loco/fig4_single_lock", "loco/fig4_transactions")

# %% [markdown]
# ## The key-value store (figure 5, section 7.2)
#
# Lookups take no lock: the index is local, one read fetches the slot, a checksum tells a torn one.
# Updates take a ticket lock, write, fence, and unlock. The peer is a model of Sherman's tree: it
# reads whole leaves, its lock lies beside the data, write and unlock go in one batch, and a node's
# threads queue for a lock among themselves.

# %%
show(out, "loco/fig5", "loco/sec7_2_fence")

# %% [markdown]
# The paper proves that the store is linearizable (appendix C). Here a checker searches histories
# of random clients for an order that explains them: in weak memory the fence is what makes the
# store right, and Sherman's tree too.

# %%
show(out, "loco/appC_linearizability")

# %% [markdown]
# ## A control loop (appendix B)
#
# Twenty converters and a controller share voltages and duty cycles through owned variables. The
# longer the controller's period, the later it sees what it did.

# %%
show(out, "loco/fig7")

# %% [markdown]
# ## The claims
#
# Misses first. A miss is not repaired by turning a parameter.

# %%
verdicts = pd.DataFrame([v.as_dict() for v in claims.evaluate(out)])
ours = verdicts[verdicts["experiment"].isin([i for i in registry.ids() if i.startswith("loco/")])]
pd.crosstab(ours["role"], ours["verdict"])

# %%
shown = ["claim", "verdict", "expected", "measured", "unit", "reason"]
ours[ours["verdict"] == "missed"][shown]

# %%
ours[ours["verdict"] == "held"][shown]

# %%
ours[~ours["verdict"].isin(["held", "missed"])][shown]
