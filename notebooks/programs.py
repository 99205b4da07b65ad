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
# # Programs of nodes
#
# `cluster.program` runs `async def` functions on the nodes of a cluster, in virtual time. This
# notebook runs the four examples in `experiments/examples/programs/`: calls with retries, an open
# loop, a leader election under partitions, and a replicated register that reads back in time. Their
# source is short, and meant to be copied.

# %%
import tempfile

import IPython.display
import pandas as pd
from pyrdma.experiments.examples.programs import (
    leader_election,
    open_loop,
    replicated_register,
    rpc_retries,
)

from pyrdma import check, figures

# %% [markdown]
# Change the parameters and run the cells below again.

# %%
SEED = 1
SEEDS = range(5)  # of the replicated register
LOADS = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # in parts of the server's capacity
QUORUM = 3  # votes that make a leader, of five

# %% [markdown]
# ## Calls with retries
#
# A call that has timed out may have been executed. The client calls again with the same request id.
# The server is killed and started again meanwhile. If it does not keep the ids, it executes some
# requests twice.

# %%
rows = []
for deduplicate in (True, False):
    result, executed = rpc_retries.run(SEED, deduplicate)
    latency = result.latency("rpc")
    rows.append(
        {
            "ids kept": deduplicate,
            **{f"p{p}, us": latency.percentile(p) / 1000 for p in (50, 99, 99.9)},
            "requests": latency.count,
            "retried": result.value("retried"),
            "executed twice": sum(n > 1 for n in executed.values()),
        }
    )
pd.DataFrame(rows).round(1)

# %% [markdown]
# ## An open loop
#
# Requests arrive at random, whether the server keeps up or not. Latency counts from the intended
# arrival. It leaves its plateau at the knee.

# %%
latencies = {load: open_loop.run(load, SEED) for load in LOADS}
drawn, ax = figures.new()
for p in (50, 99):
    ax.plot(LOADS, [latencies[load].percentile(p) / 1000 for load in LOADS], label=f"p{p}")
knee = open_loop.knee({load: latency.percentile(99) for load, latency in latencies.items()})
ax.axvline(knee, linestyle="--", color="0.5", marker="", label="knee")
ax.set(xlabel="offered load / capacity", ylabel="latency (us)", yscale="log")
ax.legend()
pd.Series({"knee": knee}, name="load")

# %% [markdown]
# ## A leader election
#
# Each bar is the time of a leader, with its term. Members are cut off at random, or die, for up to
# 0.4 s. A leader without a majority ends soon. A member that comes back has stood for election in
# vain meanwhile, so its later term ends the others' leader. With `QUORUM = 2` some seeds have a
# term with two leaders.

# %%
reigns = leader_election.run(SEED, QUORUM)
drawn, ax = figures.new(wide=True)
for (term, leader), (begin, end) in reigns.items():
    ax.barh(leader, (end - begin) / 1e9, left=begin / 1e9, height=0.6, color="#88AACC")
    ax.annotate(term, (begin / 1e9, leader), xytext=(2, 0), textcoords="offset points", va="center")
ax.set(xlabel="time (s)", ylabel="node", yticks=range(leader_election.MEMBERS))
ax.set_xlim(0, leader_election.RUN_S)
twice, gap_ms = leader_election.judge(reigns)
pd.Series({"terms with two leaders": len(twice), "longest time without a leader, ms": gap_ms})

# %% [markdown]
# ## A replicated register
#
# Readers ask two replicas of three. Without the write-back, a read may return an older number than
# the read before it. `pyrdma.check` finds the smallest set of operations that no order explains.

# %%
verdicts = {
    name: [replicated_register.run(seed, fixed) for seed in SEEDS]
    for name, fixed in (("no write-back", False), ("write-back", True))
}
pd.Series({name: sum(not v.ok for v in found) for name, found in verdicts.items()}, name="broken")

# %%
found = [verdict for verdict in verdicts["no write-back"] if not verdict.ok]
broken = max(found, key=lambda verdict: len({o.process for o in verdict.window}))
print(broken.text)
picture = next(p for p in check.draw(broken, tempfile.mkdtemp()) if p.suffix == ".png")
IPython.display.Image(filename=picture)
