"""Reasons of misses, by claim. All were measured in quick mode on `sim`."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["of"]

_ECHO = (
    "the simulated echo of verbs takes 2.7 us at one client where the paper's takes 7.9 us. No "
    "single cost per message gives both 7.9 us and the paper's peak of 42.3 M/s, so the profile "
    "fits neither"
)
_SERVICE = (
    "the service's code takes 0.51 us of the CPU for a request, by its counted steps, beside 1 us "
    "of the system call. The paper's 1 us has both"
)
_ECHO_SHARE = (
    "the calls of both sides add 3.7 us, more than the whole simulated echo of verbs takes; the "
    "paper's takes 7.9 us"
)
_ECHO_CPU = (
    "the CPUs of the server's 24 threads are the limit, as in the paper. With the call and by the "
    "counted steps a message takes 1.1 us of a thread; the paper's rate leaves it 0.7 us"
)
_ECHO_LOSS = (
    "the simulated server of verbs makes 75 M/s where the paper's makes 42: no single cost per "
    "message gives its latency of 7.9 us and its rate. The server of KRCore is slower than the "
    "paper's: a message takes 1.1 us of a thread instead of 0.7 us"
)
_DC_RATE = (
    "nic.dc_message_ns is an estimate from Connect-IB and a cost of the NIC that sends. At least "
    "nine NICs send, and the server's NIC takes requests of either transport at one rate"
)
_CALL = (
    "cpu.system_call_ns is 1000 ns, after the paper's own round number (krcore/syscall_cost), and "
    "0.9 us contradicts it"
)
_MESH = (
    "one NIC makes its ends of the connections of 24 workers with 216 others, 5184 queue pairs, "
    "at the 712 per second of figure 8a. The paper's time is a third of what this rate gives, so "
    "its mesh has fewer connections, or its NIC made them faster"
)
_SHARE = "the paper's own numbers contradict it: {} give {}, near ours"
_POLLS = (
    "all requests of a batch go out in one system call, and an empty completion queue costs 10 ns "
    "to poll, so 63 polls more take less than a microsecond. The paper's 75 us are 1.2 us for "
    "each of 64 READs"
)
_ONE_LIST = (
    "a list of 12 READs goes to one node, so a dynamic queue pair changes its target once in 12. "
    "With a random node for each READ, two queue pairs take 67 us for 64 (figure 14a), and 32 of "
    "them would make 15 M/s"
)
_SPIKE = (
    "a process makes one connection here, and the NIC of the one storage node 712 per second "
    "(figure 8a), so 180 take 253 ms. LITE's second is four connections of each process at that "
    "rate; the paper does not say how many a process makes"
)
_PEAK = (
    "the NIC of the one storage node is the limit of all four: 180 processes with 12 lookups under "
    "way keep it busy, whatever a call costs. The paper does not say how many lookups a process "
    "has under way, nor how many nodes store the table"
)

MISSES: dict[str, str] = {
    "f10a_rc_1": _SERVICE,
    "f10a_dc_1": _SERVICE,
    "f10a_dc_overhead": _SERVICE,
    "f12a_syscall": _SERVICE,
    "f12a_with_syscall": _SERVICE,
    "f14b_rc": _SERVICE,
    "f8b_krcore_240": (
        "a worker connects 216 queue pairs by one call. A queue pair takes 0.6 us, by the counted "
        "steps of create and connect; the paper's 81 us leave it 0.38 us"
    ),
    "f12a_mr_miss": ("two READs of 2.2 us, and 0.7 us of the CPU by the counted steps of a miss"),
    "f9b_opt_excess": (
        "the protocol adds a READ and an acknowledgement, with the counted steps of the service, "
        "6.0 us in both directions at 16 KiB. That is more than a quarter of an echo of verbs up "
        "to 64 KiB, and 5 % at 1 MiB"
    ),
    "f11b_rc_peak": _ECHO_CPU,
    "f11b_dc_peak": _ECHO_CPU,
    "headline_pct_of_verbs": _SHARE.format("5.4 us of 15.7 ms", "0.034 %"),
    "headline_pct_of_lite": _SHARE.format("5.4 us of 2 ms", "0.27 %"),
    "headline_race_bootstrap": _SPIKE,
    "headline_pool_memory": (
        "64 MB is an example, and figure 15a counts 6.3 MB. Queues alone are counted here; 128 "
        "receive buffers of 16 KiB for each of 24 cores would add 50 MB"
    ),
    "fig1_control_vs_data": (
        "15,700 times needs an operation of 1 us, and the paper's own READ takes 2.15 us"
    ),
    "verbs_control_old": (
        "the paper contradicts itself: 15.7 ms in sections 1, 5.1 and 6, to which the profile is "
        "set"
    ),
    "dct_slower_peak": _DC_RATE,
    "meta_server_1000": (
        "an entry has its key and a checksum beside the 12 B, and buckets for five keys each "
        "exist twice, for collisions: 33 B for a node. The paper's 17 B leave 5 B for all of that"
    ),
    "mr_register_4mb": (
        "a region is a slice of memory that the service has registered before, so the model "
        "charges the system call and a record. The paper does not say what else its 1.4 us "
        "contain"
    ),
    "qconnect_cached": _CALL,
    "f8a_krcore_240": (
        "240 clients read 73 M/s from the meta server, whose NIC serves 138 M/s (figure 10b), so "
        "nothing but their own time limits them. The paper's 44 M/s are below its own NIC's limit, "
        "too, and it does not say what its clients wait for"
    ),
    "copy_small_limit": (
        "the paper gives two limits, 1 KB in its design and 16 KB in its evaluation; the model has "
        "the second"
    ),
    "f8b_verbs_240": _MESH,
    "f8b_lite_240": _MESH,
    "f9a_rate_ratio": (
        "the thread of the RPCs takes 145 ns for a request, by the counted steps of our code. "
        "The paper's rates give 540 ns, and it does not say for what"
    ),
    "f9b_rank": (
        "up to 64 KiB a copy takes less than the protocol: at 16 KiB an echo takes 12.6 us with "
        "copies and 14.6 us without. cpu.near_copy_gbps is an estimate for the second-level cache"
    ),
    "f10a_rc_overhead": (
        "the paper's own numbers for one client give 47 %. Its latencies of verbs grow with the "
        "clients, and the simulated ones hardly do, so the call stays the same share. The "
        "service's code adds 0.51 us to it, by its counted steps"
    ),
    "f10b_dc_peak": _DC_RATE,
    "f10b_dc_loss": _DC_RATE,
    "f10d_dc_loss": _DC_RATE,
    "f11a_verbs_1": _ECHO,
    "f11a_rc_1": _ECHO,
    "f11a_rc_overhead": _ECHO_SHARE,
    "f11a_dc_overhead": _ECHO_SHARE,
    "f11b_verbs_peak": _ECHO,
    "f11b_loss": _ECHO_LOSS,
    "f12a_checks": (
        "0 meets no bound of a positive number. A service without checks looks the region's key "
        "up, too, and the model charges the comparison of its bounds as a part of that step"
    ),
    "f12b_krcore": (
        "the simulated functions do nothing but set up and read: a registration, two lookups of a "
        "miss and a READ. The paper's time includes what Fn does, and it prints it as 0.12 us"
    ),
    "f13b_write_large": (
        "KRCore adds 1.5 us to any WRITE that is too large to go with the request. On a link of "
        "100 Gbps a WRITE of 8 KiB takes 2.8 us, so 1.5 us are below 7 % only of WRITEs of more "
        "than 21 us, which have 240 KiB"
    ),
    "f14a_dc_pool1": (
        "a queue pair changes its target when the responses of the last one have come, so 64 READs "
        "take 1.8 us each, a READ of 2.2 us without the CPU's part. The paper's take 1.5 us each, "
        "so its NIC needs less than its whole READ of 2.15 us suggests"
    ),
    "f14a_rc": _POLLS,
    "f14a_ratio": _POLLS,
    "f14a_crossover": _POLLS,
    "f14a_dc_gain": _POLLS,
    "f14b_verbs": (
        "the tail is the machine's, not the network's: without the model's refresh of DRAM, timer "
        "and second socket, percentile 99.9 is 2.37 us, as the median"
    ),
    "f14b_dc": (
        "nic.dc_reconnect_ns is an estimate from Connect-IB. Two changes of target in a row take "
        "0.6 us in the model; the paper's tail has 2.2 us more than that of reliable connections"
    ),
    "f15a_krcore": (
        "the send queues have 6.3 MB as in the paper. Our completion queues add 1.6 MB; the paper "
        "counts them for LITE, and its 130 KB for a queue pair of KRCore leave no room for them"
    ),
    "f15b_async_krcore": _ONE_LIST,
    "f15b_async_ratio": _ONE_LIST,
    "f16_krcore_boot": (
        "the time of 20 starts on a node. The start of a small program takes 0.53 ms, as measured "
        "by pyrdma calibrate on another machine. 244 ms are 12 ms for each, and the paper does not "
        "say what its processes do until then"
    ),
    "f16_verbs_boot": _SPIKE,
    "f16_lite_boot": _SPIKE,
    "f16_reduction_verbs": _SPIKE,
    "f16_reduction_lite": _SPIKE,
    "f16_peak_lite": _PEAK,
    "f16_vs_lite": _PEAK,
    "f16_rank_peak": _PEAK,
    "f16_p99": (
        "lookups wait for the start of their process: with verbs percentile 99 is 183 ms. The "
        "processes of KRCore start within 11 ms here, so fewer than one lookup in a hundred waits, "
        "and the percentile is that of a lookup, 0.1 ms. The paper's start in 244 ms"
    ),
    "f16_dc_throughput": _DC_RATE,
    "f16_rc_over_dc": _DC_RATE,
    "f16_switch_time": (
        "the paper does not give the length of its samples. Ours are 100 ms, a node is frequent "
        "after two, and then the storage node's NIC makes 180 connections at 712 per second"
    ),
    "s6_speedup": _SHARE.format("15.7 ms to 5.4 us", "2907 times"),
    "s6_slowdown": (
        "verbs puts 8 B into the request and KRCore does not, so a small WRITE loses more than a "
        "READ: 1.9 us on 1.8 us. The paper does not say which experiment has 75 %"
    ),
}


def of(claims: Iterable[str]) -> dict[str, str]:
    """Return the reasons of those claims, by their full names, that miss."""
    known = {f"krcore/{name}": reason for name, reason in MISSES.items()}
    return {claim: known[claim] for claim in claims if claim in known}
