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
# # KRCore: a control plane of microseconds
#
# A process that wants to use RDMA opens the device, creates queues and exchanges addresses with its
# peer, which takes milliseconds. KRCore has done this before: a service on each node keeps queue
# pairs of the device, and applications get virtual ones. A connect then only needs the peer's
# metadata, 12 B, which two RDMA READs fetch from a meta server. This notebook connects, sends
# messages, and follows the paper on a simulated cluster. It ends with the claims that do not hold.
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
# ## A connect
#
# The first connect to a node asks the meta server, later ones of the same node do not. Verbs takes
# every step itself.

# %%
with rd.Cluster.sim(nodes=3, profile="krcore", seed=1) as cluster:
    app = rd.krcore.Service(cluster, meta_servers=[0]).app(node=1)
    first = app.vqp().connect(node=2)
    second = app.vqp().connect(node=2)
with rd.Cluster.sim(nodes=3, profile="krcore", seed=1) as cluster:
    load = rd.workload.ControlPath(clients=1, iterations=5)
    verbs = cluster.run(load).latency("connect").mean
pd.Series(
    {"KRCore": first, "KRCore, metadata cached": second, "verbs": verbs}, name="microseconds"
) / 1000

# %% [markdown]
# ## The programming interface (figure 7)
#
# A server binds a virtual queue pair to a port. A client connects one to that port and sends. What
# the server pops comes with a queue pair that leads back to the sender, without another connect.

# %%
with rd.Cluster.sim(nodes=3, profile="krcore", seed=1) as cluster:
    service = rd.krcore.Service(cluster, meta_servers=[0])
    inbox = service.app(node=2).vqp(bind=7)

    vqp = service.app(node=1).vqp()
    vqp.connect(node=2, port=7)
    vqp.send(b"hello")

    [(reply, message)] = inbox.pop_msgs()
    reply.send(message.upper())
    [(_, answer)] = vqp.pop_msgs()
pd.Series({"popped": message, "answer": answer})

# %% [markdown]
# One-sided requests need a region that its owner has registered, and no binding.

# %%
with rd.Cluster.sim(nodes=3, profile="krcore", seed=1) as cluster:
    service = rd.krcore.Service(cluster)
    region = service.app(node=2).reg_mr(4096)
    vqp = service.app(node=1).vqp()
    vqp.connect(node=2)
    vqp.write(region, b"far memory")
    before = vqp.fetch_add(region, 1, offset=64)
    found = vqp.read(region, 10)
    counters = service.counters(node=1)
pd.Series({"read": found, "word before the add": before, **counters})

# %% [markdown]
# ## The control path (section 5.1)
#
# The left end of each line is one client, the right end 240. Verbs and LITE wait for the server's
# NIC, which makes 712 queue pairs per second.

# %%
show(out, "krcore/fig8a", "krcore/fig8b")

# %% [markdown]
# ## What the data path pays (section 5.2)
#
# A request of KRCore passes a system call. It is most of what a small READ takes longer, and little
# of a large one.

# %%
show(out, "krcore/fig10a", "krcore/fig13a")

# %% [markdown]
# A dynamic queue pair serves one target after the other. More of them serve more targets at once.

# %%
show(out, "krcore/fig14a", "krcore/fig14b")

# %% [markdown]
# ## What the pool takes (sections 4.2 and 5.2)

# %%
show(out, "krcore/fig15a", "krcore/sec4_2_metadata")

# %% [markdown]
# ## Your own sweep
#
# Change the parameters and run the next two cells again. `rd.run` measures the points, shows its
# progress, and returns a tidy table. `CHANGES` fixes axes of the experiment, or parameters of the
# profile (`link.rate_gbps`).

# %%
EXPERIMENT = "krcore/fig10a"
CHANGES = {"series": "KRCore(DC)"}
SEEDS = range(1, 3)
METRIC, UNIT, OVER = "latency", "us", "clients"

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
ours = judged[judged["experiment"].isin([i for i in registry.ids() if i.startswith("krcore/")])]
pd.crosstab(ours["role"], ours["verdict"])

# %%
shown = ["claim", "verdict", "expected", "measured", "unit", "reason"]
ours[ours["verdict"] == "missed"][shown]

# %%
ours[ours["verdict"] == "held"][shown]

# %%
ours[~ours["verdict"].isin(["held", "missed"])][shown]
