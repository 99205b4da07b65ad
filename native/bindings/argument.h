// Arg is an argument of a Python method. It refuses what it does not take by an error of ours that
// names the parameter, the value, and what the parameter takes. pybind11 alone would raise a
// TypeError that lists the C++ signature, take True for 1, and know no bounds.
#pragma once
#include <pybind11/native_enum.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <typeindex>
#include <utility>
#include <vector>

namespace pyrdma::bindings {

/// Throws Error(kInvalidArgument) "<name> is <value>; give <takes>".
[[noreturn]] void refuse(const char* name, pybind11::handle value, const std::string& takes);

/// A text as a template argument.
template <std::size_t N>
struct Label {
  std::array<char, N> text;
  constexpr Label(const char (&given)[N]) { std::copy_n(given, N, text.begin()); }  // NOLINT
};

/// Has the Python name `label` and the C++ type T. A number may have a least and a most value. An
/// std::optional also takes None.
template <Label label, class T, auto... bounds>
struct Arg {
  T value{};
  operator const T&() const { return value; }  // NOLINT: it stands for the value
};

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <class T>
struct IsShared : std::false_type {};
template <class T>
struct IsShared<std::shared_ptr<T>> : std::true_type {};

/// Says in words what Python code may give for a T that is not a number.
template <class T>
std::string taken() {
  namespace py = pybind11;
  if constexpr (IsVector<T>::value) {
    return "a list of " + taken<typename T::value_type>();
  } else if constexpr (IsOptional<T>::value) {
    return taken<typename T::value_type>() + " or None";
  } else if constexpr (IsShared<T>::value) {
    return taken<typename T::element_type>();
  } else if constexpr (std::is_same_v<T, bool>) {
    return "True or False";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return "text";
  } else if constexpr (std::is_same_v<T, py::bytes>) {
    return "bytes";
  } else if constexpr (std::is_integral_v<T>) {
    return "whole numbers of 64 bits";
  } else if constexpr (std::is_enum_v<T>) {
    const py::handle type =
        py::detail::global_internals_native_enum_type_map_get_item(std::type_index(typeid(T)));
    return "a member of " + py::str(type.attr("__name__")).cast<std::string>();
  } else {
    return py::str(py::type::of<T>().attr("__name__")).cast<std::string>();
  }
}

template <class T>
T read_whole(const char* name, pybind11::handle source, T least, T most) {
  const auto out_of_bounds = [&] {
    refuse(name, source,
           "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  };
  if (PyBool_Check(source.ptr()) || PyIndex_Check(source.ptr()) == 0) out_of_bounds();
  const auto number = pybind11::reinterpret_steal<pybind11::object>(PyNumber_Index(source.ptr()));
  if (!number) throw pybind11::error_already_set();
  using Wide = std::conditional_t<std::is_signed_v<T>, long long, unsigned long long>;
  Wide wide = 0;
  if constexpr (std::is_signed_v<T>)
    wide = PyLong_AsLongLong(number.ptr());
  else
    wide = PyLong_AsUnsignedLongLong(number.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    out_of_bounds();
  }
  if (wide < least || wide > most) out_of_bounds();
  return static_cast<T>(wide);
}

inline double read_real(const char* name, pybind11::handle source, double least, double most) {
  const bool number = !PyBool_Check(source.ptr()) && PyNumber_Check(source.ptr()) != 0 &&
                      PyComplex_Check(source.ptr()) == 0;
  const double real = number ? PyFloat_AsDouble(source.ptr()) : -1.0;
  const bool failed = PyErr_Occurred() != nullptr;
  if (failed) PyErr_Clear();
  if (!number || failed || !(real >= least && real <= most)) {
    const auto text = [](double v) {
      return pybind11::str(pybind11::float_(v)).cast<std::string>();
    };
    refuse(name, source, "a number from " + text(least) + " to " + text(most));
  }
  return real;
}

template <class T>
T read_object(const char* name, pybind11::handle source) {
  try {
    pybind11::detail::make_caster<T> caster;
    if ((!source.is_none() || IsOptional<T>::value) && caster.load(source, true))
      return pybind11::detail::cast_op<T>(std::move(caster));
  } catch (const pybind11::reference_cast_error&) {  // None as an element of a list
  }
  refuse(name, source, taken<T>());
}

/// Returns the value of an argument, or throws as Arg does.
template <class T, auto... bounds>
T read_argument(const char* name, pybind11::handle source) {
  if constexpr (std::is_same_v<T, bool>) {
    if (!PyBool_Check(source.ptr())) refuse(name, source, taken<bool>());
    return source.ptr() == Py_True;
  } else if constexpr (std::is_integral_v<T>) {
    std::array<T, 2> range{std::numeric_limits<T>::min(), std::numeric_limits<T>::max()};
    std::size_t at = 0;
    ((range[at++] = static_cast<T>(bounds)), ...);
    return read_whole<T>(name, source, range[0], range[1]);
  } else if constexpr (std::is_floating_point_v<T>) {
    static_assert(sizeof...(bounds) == 2, "a number needs bounds");
    const std::array<double, 2> range{static_cast<double>(bounds)...};
    return read_real(name, source, range[0], range[1]);
  } else {
    return read_object<T>(name, source);
  }
}

}  // namespace pyrdma::bindings

template <pyrdma::bindings::Label label, class T, auto... bounds>
struct pybind11::detail::type_caster<pyrdma::bindings::Arg<label, T, bounds...>> {
  using Type = pyrdma::bindings::Arg<label, T, bounds...>;
  PYBIND11_TYPE_CASTER(Type, make_caster<T>::name);
  bool load(handle source, bool /*convert*/) {
    value.value = pyrdma::bindings::read_argument<T, bounds...>(label.text.data(), source);
    return true;
  }
};
