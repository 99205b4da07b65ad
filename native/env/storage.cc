#include "env/storage.h"

#include "base/error.h"

namespace pyrdma {

std::string checked_file_name(std::string_view name) {
  const bool bad = name.empty() || name.size() > 200 || name.front() == '.' ||
                   name.find('/') != std::string_view::npos ||
                   name.find('\0') != std::string_view::npos;
  if (bad) {
    throw Error(ErrorCode::kInvalidArgument,
                "storage: file name '" + std::string(name) +
                    "' must be 1 to 200 bytes without '/', NUL or a leading '.'");
  }
  return std::string(name);
}

}  // namespace pyrdma
