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
# # Tailwind: fast and atomic RDMA-based replication
#
# A store keeps its objects in memory, and its log at three backups. RAMCloud sends the log by RPC:
# the CPU of a backup takes each request, copies the data and answers. Tailwind writes the log to
# the backup's buffer by RDMA. The backup's CPU does nothing; after a crash a scan of the buffer
# finds how far the writes have come. This notebook stores some objects, kills a server, and follows
# the paper on a simulated cluster. It ends with the claims that do not hold.
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
# ## A store, and a server that dies
#
# Five servers, a coordinator. The killed server had all objects; another one recovers them from the
# backups. `detected` is the time until the coordinator knows of the death.

# %%
with rd.Cluster.sim(nodes=6, profile="r320", seed=1) as cluster:
    store = rd.tailwind.Store(cluster, replication="tailwind", replicas=3, log_bytes=32 << 20)
    store.fill(20_000, value_bytes=100, primary=0)
    recovery = store.crash(0).recovery
recovery.frame.round(4)

# %% [markdown]
# ## The numbers of the abstract
#
# Two sets of CPU costs are drawn. Ours are the counted steps of this code. RAMCloud's make a
# simulated cluster answer what RAMCloud's authors have published of their own: 948,000 reads per
# second of a server, and writes of 13.5 µs. No number of Tailwind's paper is used.

# %%
show(out, "tailwind/headline")

# %% [markdown]
# ## Why replication by RPC is slow (sections 1 and 2)
#
# Each PUT becomes four requests that servers take, and a worker spins while it waits. One dispatch
# thread takes all requests of a server, so it is busy before the workers are.

# %%
show(out, "tailwind/fig1", "tailwind/fig2")

# %% [markdown]
# ## A write that is cut (section 3.4.2)
#
# The scan finds an object only if all of it and its checksum are there.

# %%
show(out, "tailwind/fig5", "tailwind/sec3_3_1_rpc_fraction")

# %% [markdown]
# ## Throughput and latency (sections 4.2 and 4.3)

# %%
show(out, "tailwind/fig6", "tailwind/fig7", "tailwind/fig8")

# %% [markdown]
# ## CPUs (sections 4.4 and 4.5)

# %%
show(out, "tailwind/fig9", "tailwind/fig10", "tailwind/fig11")

# %% [markdown]
# ## Recovery (section 4.6)

# %%
show(out, "tailwind/fig12")

# %% [markdown]
# ## What the paper leaves open
#
# A completion says that the NIC of the backup has the data. A read behind the write says that they
# are in its memory. Connections stay few only where replicas lie in groups. A server without
# workers may write to its backups once for all requests that it has.

# %%
show(out, "tailwind/durability", "tailwind/placement", "tailwind/group_commit")

# %% [markdown]
# ## Your own sweep
#
# Change the parameters and run the next two cells again. `rd.run` measures the points, shows its
# progress, and returns a tidy table. `CHANGES` fixes axes of the experiment, or parameters of the
# profile (`link.rate_gbps`).

# %%
EXPERIMENT = "tailwind/fig2"
CHANGES = {"costs": "measured"}
SEEDS = range(1, 3)
METRIC, UNIT, OVER = "throughput", "op/s", "clients"

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
# ## Claims that do not hold

# %%
judged = verdicts(out)
ours = judged[judged["experiment"].isin([i for i in registry.ids() if i.startswith("tailwind/")])]
pd.crosstab(ours["role"], ours["verdict"])

# %%
shown = ["claim", "verdict", "expected", "measured", "unit", "reason"]
ours[ours["verdict"] == "missed"][shown]

# %%
ours[ours["verdict"] == "held"][shown]

# %%
ours[~ours["verdict"].isin(["held", "missed"])][shown]
