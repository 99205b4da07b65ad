"""Nodes with RDMA NICs in one LAN, for pyrdma.

Instructions:
Wait until the experiment is ready. Download its manifest (the tab "Manifest") and turn it into an
Ansible inventory: `pyrdma inventory manifest.xml --user YOU --out hosts.yml`. The nodes start with
a bare Ubuntu. pyrdma's playbooks set them up from your machine.
"""

# CloudLab runs this file in Python 2 or 3, by its version of geni-lib.
import geni.portal as portal
import geni.rspec.emulab  # noqa: F401 - adds the methods set... to LANs
import geni.rspec.pg as pg

UBUNTU = "urn:publicid:IDN+emulab.net+image+emulab-ops//UBUNTU22-64-STD"

# By hardware type: its site, the speed of its fastest NIC, and the speed that a LAN asks for by
# default, in Gb/s. Where a machine has a slower NIC, too, the speed decides which one the LAN gets.
# Apt sets its links to InfiniBand or to one of several Ethernets, so there CloudLab chooses (0).
HARDWARE = {
    "c6220": ("Apt", 56, 0),
    "c6525-100g": ("Utah", 100, 100),
    "c6525-25g": ("Utah", 25, 25),
    "d6515": ("Utah", 100, 100),
    "m510": ("Utah", 10, 10),
    "r320": ("Apt", 56, 0),
    "r650": ("Clemson", 100, 100),
    "r6525": ("Clemson", 100, 100),
    "sm110p": ("Wisconsin", 100, 100),
    "xl170": ("Utah", 25, 25),
}
# The nodes' network, 10.10.1.0/24, has 254 addresses.
MOST_NODES = 200


def define(context):
    """Define what the user chooses when an experiment is made from the profile."""
    kind = portal.ParameterType
    context.defineParameter(
        "nodeCount",
        "Number of nodes",
        kind.INTEGER,
        2,
        longDescription="From 1 to %d. A single node has no LAN." % MOST_NODES,
    )
    types = [
        (name, "%s (%s, %d Gb/s)" % (name, site, most))
        for name, (site, most, _) in sorted(HARDWARE.items())
    ]
    context.defineParameter("hardware", "Hardware type", kind.NODETYPE, "xl170", types)
    context.defineParameter(
        "image",
        "Disk image",
        kind.IMAGE,
        UBUNTU,
        longDescription="Ubuntu 22.04, or another image that pyrdma's playbooks know.",
    )
    context.defineParameter(
        "sameSwitch",
        "All nodes on one switch",
        kind.BOOLEAN,
        True,
        longDescription="Latencies then do not depend on the placement. A switch may have too few "
        "free nodes for a large experiment.",
    )
    context.defineParameter(
        "linkSpeed",
        "Link speed (Gb/s)",
        kind.INTEGER,
        0,
        longDescription="0: that of the hardware type's fastest NIC. A lower speed can choose a "
        "slower NIC of the machine. Traffic is never shaped.",
    )


def verify(context, chosen):
    """Report what cannot be had, beside the fields in which the user chose it."""

    def report(message, *names):
        context.reportError(portal.ParameterError(message, list(names)))

    if not 1 <= chosen.nodeCount <= MOST_NODES:
        report(
            "%d nodes: give from 1 to %d." % (chosen.nodeCount, MOST_NODES),
            "nodeCount",
        )
    most = HARDWARE[chosen.hardware][1]
    if not 0 <= chosen.linkSpeed <= most:
        report(
            "%d Gb/s: a link of %s has at most %d Gb/s; give from 1 to %d, or 0."
            % (chosen.linkSpeed, chosen.hardware, most, most),
            "linkSpeed",
            "hardware",
        )
    if not chosen.image.startswith("urn:publicid:IDN+"):
        report("%r is no image: its name begins with urn:publicid:IDN+." % chosen.image, "image")
    context.verifyParameters()


def ask(request, chosen):
    """Ask for the nodes and their LAN."""
    lan = None
    if chosen.nodeCount > 1:
        lan = request.LAN("lan")
        speed = chosen.linkSpeed or HARDWARE[chosen.hardware][2]
        if speed:
            lan.bandwidth = speed * 1000 * 1000  # kbit/s
        lan.setNoBandwidthShaping()  # otherwise a bridge between the nodes may slow them down
        if chosen.sameSwitch:
            lan.setNoInterSwitchLinks()
    for number in range(chosen.nodeCount):
        node = request.RawPC("node-%d" % number)
        node.hardware_type = chosen.hardware
        node.disk_image = chosen.image
        if lan is not None:
            interface = node.addInterface("if1")
            interface.addAddress(pg.IPv4Address("10.10.1.%d" % (number + 1), "255.255.255.0"))
            lan.addInterface(interface)


def main():
    """Print the request for CloudLab."""
    context = portal.Context()
    define(context)
    chosen = context.bindParameters()
    verify(context, chosen)
    request = context.makeRequestRSpec()
    ask(request, chosen)
    context.printRequestRSpec(request)


main()
