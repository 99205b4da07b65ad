// The table of litmus shapes.
#pragma once
#include <span>

#include "measure/litmus/model.h"

namespace pyrdma::measure::litmus {

struct Shape {
  const char* name;
  const char* locations;
  const char* threads;
  const char* observed;
  const char* outcome;  // the outcome that the shape asks about
  Level level;          // the verdict, assigned by hand: the model must agree
  const char* why;
};

std::span<const Shape> shapes();

}  // namespace pyrdma::measure::litmus
