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
# # The foundation: raw RDMA in virtual time
#
# Five papers measured systems on RDMA networks. This notebook runs the raw-RDMA experiments of
# the papers on a simulated NIC and draws the papers' numbers over the results. It ends with the
# claims that do not hold or cannot be judged yet.
#
# `rd.fetch` takes an archive (`rd.fetch("r.zip")`), whose figures and verdicts are then shown, or a
# results folder, in which the missing points are measured in quick mode, a few seconds per
# experiment. Here it is what `PYRDMA_RESULTS` names, or a temporary folder.

# %%
# ruff: noqa: E501 - a row of a table is one line
import tempfile

import pandas as pd

import pyrdma as rd
from pyrdma import Cluster, fetch, figures, registry, workload
from pyrdma.data import Data
from pyrdma.notebook import progress, results_folder, show, verdicts
from pyrdma.profiles import Profile

out = fetch(results_folder())
pd.set_option("display.max_colwidth", 120)

# %% [markdown]
# ## The model of the simulator
#
# Each node has a NIC, and threads that each have a CPU clock. Switches and links connect the
# NICs. A request
#
# 1. costs its thread the post (`cpu.post_ns` per doorbell, `cpu.post_request_ns` per request),
# 2. reaches the NIC after `pcie.doorbell_ns`, occupies the requester's engine
#    (`nic.tx_message_ns`, more when it is signaled or its payload has to be fetched) and passes
#    its pipeline (`nic.tx_latency_ns`),
# 3. is serialised on the link with real header sizes, and waits for the switch port's backlog,
# 4. occupies the responder's engine (`nic.rx_read_ns`, ...), longer after a miss of the NIC's
#    memory for queue-pair contexts and translations, and accesses the host's memory over PCIe,
# 5. is followed by a response through the same stages.
#
# So the latency is the sum of all stages, and the rate is that of the slowest stage. For a read
# of
# $b$ bytes:
#
# $$ t = t_{post} + t_{doorbell} + t_{tx} + 2\,(t_{wire} + t_{switch} + t_{rx}) + t_{dma\,read} + t_{dma\,write} + t_{poll} $$
#
# The simulator moves the payload bytes. It has weak memory and faults, too:
# `Cluster.sim(memory="weak", faults=rd.faults.random(1))`. These runs need neither. The model leaves
# out the CPU's own translation buffers and the NIC's congestion control.

# %%
with Cluster.sim(nodes=2, profile="krcore", seed=1) as cluster:
    found = cluster.run(workload.VerbsLoad(op="read", size=8, mode="latency"), duration_s=0.001)
read = found.latency("read")
print(f"8 B read on KRCore's testbed: {read.percentile(50):.0f} ns; the paper has 2150 ns")

# %% [markdown]
# ## How profiles are calibrated
#
# A profile holds every parameter of a testbed with unit and source. A source is a claim of role
# *calibration*, a vendor's document, a standard, a measurement or an estimate. A *validation*
# claim must not set a parameter; a test checks this.

# %%
profile = Profile.load("krcore")
pd.DataFrame(
    [(key, p.value, p.unit, p.source) for key, p in profile.parameters.items()],
    columns=["parameter", "value", "unit", "source"],
)

# %% [markdown]
# ### The arithmetic
#
# | micro-benchmark (calibration) | parameters | arithmetic |
# |---|---|---|
# | 32 B reads of 1.7, 2.9, 2.0 us (eRPC, table 2) | `tx_latency`, `rx_latency` of cx3, cx4, cx5 | the time less all other stages, in three equal shares: one for transmission, two for reception |
# | 8 B read of 2.15 us (KRCore, 5.2) | the same of krcore | the same |
# | 138 M reads/s, 145 M writes/s at one server (KRCore, 5.2) | `rx_read`, `rx_write` | 1/138 M = 7.25 ns, 1/145 M = 6.90 ns of the responder's engine |
# | 1 B write of 1.73 us, post of 1 us (Spindle, 3.2) | `tx_latency`, `rx_latency`, `post` of spindle | 0.73 us are left for the way there and back: 60 ns for each passage of a pipeline |
# | 4 KB write of 2.46 us (Spindle, 3.2) | `pcie.read` of spindle | 0.73 us more: 0.33 us on the link, 0.40 us for the fetch, because 1 B goes inline |
# | 25 % loss by signaling, 20 % by fetching (eRPC, 4.2) | `completion`, `dma_read` | a third and a quarter of the time of a message |
# | half the rate at 5,000 connections of 375 B (eRPC, 4.1.2) | `cache`, `qp_miss` | half of the 2 MB of SRAM for contexts; then a miss costs 150 ns |
# | 413 us with 361 us in the NIC, 2.4 % of 15.7 ms (KRCore, 2.3) | `control.create`, `create_qp_command`, `handshake` | the driver's part of a creation is the rest of 413 us |
# | 712 connections per second (KRCore, 5.1) | `control.command` | 1/712 s = 361 us + 4 commands of 261 us; LITE's 2 ms follow: 1.89 ms |
# | 15.7 ms (KRCore, 2.3) | `control.open` | what the other steps and the 9 commands of an open leave |
#
# Some interpretations, each from the `ambiguities` of the claims files:
#
# * *Spindle's post cost.* The text says about 1 us, its own counters hint at 0.25 us per write.
#   The counters are validation claims, so the profile has 1 us. The pipelines then appear faster
#   than those of NICs of that time; only the sum of post and pipelines is measured.
# * *eRPC's connections* are counted at the NIC: a connection that two nodes use both ways counts
#   once at each.
# * *KRCore's 240 clients* run on ten nodes of 24 cores, with the server as one node more.
# * *DC requests* cost the engines as much as RC requests. No calibration claim states the
#   difference, so the simulation misses the published lower peak of DC.

# %% [markdown]
# ## Latency of a single request

# %%
show(out, "erpc/table2", "spindle/fig1", "fabric/latency")

# %% [markdown]
# Calibration by one size predicts the other sizes of Spindle's figure. Above 220 B the payload is
# not inline, so the step between 64 B and 512 B is the fetch over PCIe; above 512 B the slope
# follows the link's rate. Unacknowledged transports (UC, UD) have a low latency, because they
# complete as soon as the message has left.

# %% [markdown]
# ## Bandwidth and rate

# %%
show(out, "fabric/bandwidth", "fabric/rate", "erpc/fig6", "erpc/sec4_2_dma_costs")

# %% [markdown]
# The rate of reads stops growing at 16 in flight per queue pair, the limit of outstanding reads.
# More queue pairs raise the rate; more depth does not.
#
# ## Many clients, one server: the server's NIC is the limit

# %%
show(out, "krcore/fig10a", "krcore/fig10b", "krcore/fig10c", "krcore/fig10d")

# %% [markdown]
# ## Connecting is thousands of times slower than reading

# %%
show(out, "krcore/fig3a", "krcore/fig3b", "krcore/fig8a", "krcore/sec3_dct")

# %% [markdown]
# The server's NIC executes one command at a time. From 16 clients on, verbs and LITE reach the
# same 712 connections per second, although a single connection of LITE is eight times faster.
#
# ## The NIC's cache of connections and regions

# %%
show(out, "erpc/fig1", "loco/nic_facts")

# %% [markdown]
# The loss at 5,000 connections is calibrated. The shape before it is not; the paper's text only
# states that the rate falls. Here the rate is constant until the contexts fill their half of the
# memory. Then the link hides the first misses: the 40 Gbps link limits 16 B reads to 25 M/s.
#
# ## Copying and the two-tier network

# %%
show(out, "spindle/fig14", "erpc/sec2_1_switch_buffer")

# %% [markdown]
# ## Your own sweep
#
# Change the parameters and run the next two cells again. `rd.run` measures the points, shows its
# progress, and returns a tidy table. `CHANGES` fixes axes of the experiment, or parameters of the
# profile (`link.rate_gbps`).

# %%
EXPERIMENT = "fabric/latency"
CHANGES = {"op": "read", "transport": "rc", "link.rate_gbps": 50}
SEEDS = range(1, 3)
METRIC, UNIT, OVER = "latency_p50", "us", "size"

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
# The round trip between racks is the calibration claim with the largest error: 4.8 us against 6
# us. Switches below 500 ns and cables of a few metres cannot explain the difference; the paper's
# number may include its hosts' software.
#
# ## The claims
#
# Missed claims come first. Claims *by construction* hold because a parameter or the model was made
# so; they predict nothing.

# %%
judged = verdicts(out)
ours = judged[judged["experiment"].isin(registry.ids())]
pd.crosstab(ours["role"], ours["verdict"])

# %%
shown = ["claim", "role", "verdict", "expected", "measured", "unit", "reason"]
ours[ours["verdict"] == "missed"][shown]

# %%
ours[(ours["verdict"] == "held") & (ours["role"] == "validation")][shown]

# %%
ours[ours["verdict"] == "held"][shown]

# %%
missed = ours[(ours["verdict"] == "missed") & (ours["role"] == "calibration")]
unexplained = list(missed[~missed["miss_has_reason"]]["claim"])
assert not unexplained, f"calibration claims that miss without a reason: {unexplained}"
