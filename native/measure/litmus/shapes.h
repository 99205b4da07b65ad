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
  const char* outcome;  // the one that the shape asks for
  Level level;          // its verdict, by hand: the model must agree
  const char* why;
};

std::span<const Shape> shapes();

}  // namespace pyrdma::measure::litmus
