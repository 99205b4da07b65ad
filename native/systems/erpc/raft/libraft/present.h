// Defines PYRDMA_LIBRAFT where the header of libraft 0.15 (Debian's libraft-dev) is installed, and
// includes it. Only files of this folder include it. The library itself is opened at run time.
#pragma once

#if !defined(PYRDMA_WITHOUT_LIBRAFT) && __has_include(<raft.h>) && __has_include(<raft/fixture.h>)
#define PYRDMA_LIBRAFT 1
extern "C" {
#include <raft.h>
}
#endif
