// A private Unix socket by which a daemon hands memory files to its applications.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace pyrdma::krcore::ring {

/// Owns a descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release();

 private:
  int fd_;
};

/// What comes with descriptors.
struct Note {
  std::uint64_t bytes = 0;  // of the memory file
  std::uint32_t key = 0;    // of the registration; 0: the ring, with its doorbell
  std::uint32_t version = 0;
};

/// Makes a socket of mode 0600 in `folder`, which is made with mode 0700. Throws
/// Error(kUnavailable) that names the path: another process listens there, the path is too long,
/// or others may enter the folder.
Descriptor listen_in(const std::string& folder, const std::string& path);
/// Throws Error(kUnavailable) if nobody listens.
Descriptor connect_to(const std::string& path);
/// Returns a connection of a process of this user, or none. Others are turned away.
Descriptor accept_own(int listener);
/// Returns false when the other end has gone, or takes nothing.
bool send_files(int socket, const Note& note, std::span<const int> files);
/// Returns the number of descriptors received, or -1 after `timeout_ms` and when the other end has
/// gone.
int receive_files(int socket, Note& note, std::array<Descriptor, 2>& files, int timeout_ms);
bool has_hung_up(int socket);

}  // namespace pyrdma::krcore::ring
