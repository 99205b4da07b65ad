"""Builds the programs of ``experiments/peers`` that use gRPC."""

from __future__ import annotations

import shutil
from pathlib import Path

from .peer import Availability, compiled, has_header, missing_tools

__all__ = ["INSTALL_COMMAND", "available", "program"]

INSTALL_COMMAND = "apt-get install libgrpc++-dev libprotobuf-dev protobuf-compiler-grpc g++"


def available(install_command: str = INSTALL_COMMAND) -> Availability:
    """Return whether the compilers and gRPC's headers are available."""
    tools = missing_tools(["g++", "protoc", "grpc_cpp_plugin", "timeout"], install_command)
    if not tools.ok:
        return tools
    for header in ("grpcpp/grpcpp.h", "google/protobuf/message.h"):
        if not has_header(header):
            return Availability(False, f"the header {header} is missing", install_command)
    return tools


def program(source: Path) -> Path:
    """Return the program of `source` and of the ``.proto`` file beside it.

    ``protoc`` generates the protocol's code in the folder of the build.
    """
    interface = source.with_suffix(".proto")
    plugin = shutil.which("grpc_cpp_plugin")
    generator = ["protoc", f"--proto_path={source.parent}", "--cpp_out={folder}"]
    generator += ["--grpc_out={folder}", f"--plugin=protoc-gen-grpc={plugin}"]
    generated = [f"{{folder}}/{source.stem}{end}" for end in (".pb.cc", ".grpc.pb.cc")]
    compiler = ["g++", "-std=c++17", "-O2", "-I{folder}", *generated]
    # gRPC's headers call libraries of its own, which differ between its versions.
    libraries = ["-Wl,--copy-dt-needed-entries", "-lgrpc++", "-lgrpc", "-lprotobuf"]
    return compiled(source, compiler, libraries, generator, interface)
