// Methods that wait in native code, for scripts and for node programs alike.
#pragma once
#include <pybind11/stl.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "bindings/program/operation.h"
#include "bindings/session.h"

namespace pyrdma::bindings {

/// Turns the result of a method into the object that Python gets.
struct ToPython {
  template <class T>
  py::object operator()(T&& value) const {
    if constexpr (std::is_same_v<std::decay_t<T>, std::vector<std::byte>>)
      return py::bytes(reinterpret_cast<const char*>(value.data()), value.size());
    else
      return py::cast(std::forward<T>(value));
  }
};

/// A call of a method as an operation. Its arguments are converted in the turn that makes it, its
/// result in the turn that takes it; between the two the task's thread runs it, without Python.
template <class Call, class Convert>
class NativeCall final : public Operation {
 public:
  NativeCall(Call call, Convert convert, bool is_due)
      : call_(std::move(call)), convert_(std::move(convert)), is_due_(is_due) {}
  const char* waits_for() const override { return "a method of an object"; }

 protected:
  bool is_due() const override { return is_due_; }
  void run(Task& task) override {
    if constexpr (std::is_void_v<Result>)
      call_(calling(task));
    else
      result_.emplace(call_(calling(task)));
  }
  py::object result() override {
    if constexpr (std::is_void_v<Result>)
      return py::none();
    else
      return convert_(std::move(*result_));
  }

 private:
  using Result = std::invoke_result_t<Call&, CallingTask>;
  using Kept = std::conditional_t<std::is_void_v<Result>, std::monostate, Result>;
  Call call_;
  Convert convert_;
  bool is_due_;
  std::optional<Kept> result_;
};

namespace waiting_method {

/// An object without a session has no node programs.
template <class Self>
bool awaits_calls(Self& self) {
  if constexpr (requires { self.session(); })
    return self.session().awaits_calls();
  else
    return false;
}

/// `work(self, calling task, arguments...)`.
template <class Class, class Work, class Convert, class Self, class Result, class... Arguments>
void def(Class& bound, const char* name, Work work, Convert convert,
         Result (Work::*)(Self&, CallingTask, Arguments...) const) {
  bound.def(name, [work, convert, is_due = gives_back(name)](const std::shared_ptr<Self>& self,
                                                             Arguments... arguments) {
    if (awaits_calls(*self)) {
      auto call = [work, self, kept = std::tuple<std::decay_t<Arguments>...>(arguments...)](
                      const CallingTask& task) {
        return std::apply([&](const auto&... each) { return work(*self, task, each...); }, kept);
      };
      const std::shared_ptr<Operation> made =
          std::make_shared<NativeCall<decltype(call), Convert>>(std::move(call), convert, is_due);
      return py::cast(made);
    }
    if constexpr (std::is_void_v<Result>) {
      work(*self, running_here(), arguments...);
      return py::object(py::none());
    } else {
      return py::object(convert(work(*self, running_here(), arguments...)));
    }
  });
}

template <class Class, class Work, class Convert, class Self, class Result, class... Arguments>
void def(Class& bound, const char* name, Work work, Convert convert,
         Result (Work::*)(Self&, Arguments...) const) {
  const auto of_any = [work](Self& self, CallingTask /*task*/, Arguments... arguments) -> Result {
    return work(self, arguments...);
  };
  def(bound, name, of_any, convert, &decltype(of_any)::operator());
}

}  // namespace waiting_method

/// Gives a class of Python, whose holder is a shared_ptr, a method that waits:
/// `work(self, arguments...)` uses nothing of Python and waits inside of Session::call; it may take
/// the CallingTask after `self`;
/// `convert(result)` makes what Python gets. The caller gets the result, but in the steps of a
/// method that a node program awaits (Session::await_calls) it gets an operation.
template <class Class, class Work, class Convert = ToPython>
void def_waiting(Class& bound, const char* name, Work work, Convert convert = {}) {
  waiting_method::def(bound, name, work, convert, &Work::operator());
}

}  // namespace pyrdma::bindings
