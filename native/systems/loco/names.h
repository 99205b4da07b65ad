// Names of the runtime that channels and their users write without their namespace.
#pragma once
#include "runtime/runtime.h"

namespace pyrdma::loco {

using fabric::RemoteRegion;
using runtime::AckKey;
using runtime::Caller;
using runtime::InFlight;
using runtime::LocalRegion;
using runtime::Mark;
using runtime::MemRef;
using runtime::Placement;
using runtime::Polling;
using runtime::Requests;
using runtime::text_of;

}  // namespace pyrdma::loco
