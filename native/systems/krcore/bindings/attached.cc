#include "systems/krcore/bindings/attached.h"

#include <memory>
#include <mutex>
#include <string>

#include "systems/krcore/bindings/script_app.h"
#include "systems/krcore/ring/attachment.h"

namespace pyrdma::krcore::bindings {

namespace {

/// The application of this process at a daemon. The functions of Python take a node and an
/// application as those of Services do; there is one of each.
class Attached {
 public:
  Attached(const std::string& path, std::uint32_t message_bytes)
      : both_(std::make_shared<Both>(path, message_bytes)) {}
  void close(NodeId /*node*/, std::uint64_t /*app*/) { both_.reset(); }
  template <class Use>
  auto with(Use&& use) {
    const std::shared_ptr<Both> both = both_;
    if (both == nullptr) {
      throw Error(ErrorCode::kInvalidArgument,
                  "krcore: the application has been closed; make another one with attach()");
    }
    const py::gil_scoped_release release;
    const std::lock_guard<Mutex> lock(both->mutex);
    return use(both->app);
  }

 private:
  struct Both {
    Both(const std::string& path, std::uint32_t message_bytes)
        : attachment(path), mutex(attachment.env()), app(message_bytes, attachment.application()) {}
    ring::Attachment attachment;
    Mutex mutex;
    ScriptApp<ring::Application&> app;
  };
  std::shared_ptr<Both> both_;  // guarded by the interpreter's lock
};

struct Here {
  template <class Use>
  auto operator()(Attached& attached, NodeId /*node*/, std::uint64_t /*app*/, Use&& use) const {
    return attached.with(use);
  }
};

}  // namespace

void bind_attached(py::module_& module) {
  py::class_<Attached, std::shared_ptr<Attached>> attached(module, "Attached");
  attached.def(py::init<const std::string&, std::uint32_t>())
      .def("node",
           [](Attached& self) { return self.with([](auto& user) { return user.app.node(); }); })
      .def("close", &Attached::close);
  def_applications<Attached, Here>(attached);
}

}  // namespace pyrdma::krcore::bindings
