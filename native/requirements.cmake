# Finds the packages that the build needs. It names all missing packages at once, with the one
# command that installs them on Debian and Ubuntu.

set(PYRDMA_GCC_MINIMUM 11)
set(PYRDMA_CLANG_MINIMUM 14)

function(pyrdma_stop_if_missing)
  if(NOT PYRDMA_MISSING)
    return()
  endif()
  set(packages "")
  set(lines "")
  foreach(entry IN LISTS PYRDMA_MISSING)
    string(REPLACE "|" ";" parts "${entry}")
    list(GET parts 0 package)
    list(GET parts 1 what)
    list(APPEND packages ${package})
    string(APPEND lines "  - ${what}\n")
  endforeach()
  list(REMOVE_DUPLICATES packages)
  list(JOIN packages " " packages)
  message(FATAL_ERROR "pyrdma cannot be built here. Missing:\n${lines}"
                      "Install with:\n\n    sudo apt-get install -y ${packages}\n")
endfunction()

macro(pyrdma_missing package what)
  list(APPEND PYRDMA_MISSING "${package}|${what}")
endmacro()

macro(pyrdma_find_compiler)
  include(CheckLanguage)
  check_language(CXX)
  if(NOT CMAKE_CXX_COMPILER)
    pyrdma_missing(g++ "a C++20 compiler (GCC ${PYRDMA_GCC_MINIMUM} or Clang ${PYRDMA_CLANG_MINIMUM}, or newer)")
    pyrdma_stop_if_missing()
  endif()
endmacro()

# Sets PYRDMA_VERBS_MISSING to the missing headers of rdma-core. The provider for real NICs needs
# the headers but not the libraries: it opens the libraries at run time.
set(PYRDMA_VERBS_HEADERS infiniband/verbs.h infiniband/mlx5dv.h rdma/rdma_cma.h)
macro(pyrdma_find_verbs)
  include(CheckIncludeFileCXX)
  set(PYRDMA_VERBS_MISSING "")
  foreach(header IN LISTS PYRDMA_VERBS_HEADERS)
    string(MAKE_C_IDENTIFIER "PYRDMA_HAS_${header}" has)
    if(NOT ${has})
      unset(${has} CACHE) # the user may have installed it since the last look
    endif()
    check_include_file_cxx(${header} ${has})
    if(NOT ${has})
      list(APPEND PYRDMA_VERBS_MISSING ${header})
      if(PYRDMA_VERBS STREQUAL "AUTO")
        continue()
      elseif(header MATCHES "^rdma/")
        pyrdma_missing(librdmacm-dev "the header ${header} (PYRDMA_VERBS is on)")
      else()
        pyrdma_missing(libibverbs-dev "the header ${header} (PYRDMA_VERBS is on)")
      endif()
    endif()
  endforeach()
  if(PYRDMA_VERBS STREQUAL "AUTO" AND PYRDMA_VERBS_MISSING)
    list(JOIN PYRDMA_VERBS_MISSING ", " missing)
    message(WARNING "This build has no provider for real NICs, because headers are missing: ${missing}. "
                    "Install them and build again:\n\n"
                    "    sudo apt-get install -y libibverbs-dev librdmacm-dev\n\n"
                    "-DPYRDMA_VERBS=OFF builds without the provider and without this warning.\n")
  endif()
endmacro()

macro(pyrdma_find_requirements)
  if((CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS PYRDMA_GCC_MINIMUM)
     OR (CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS
                                                    PYRDMA_CLANG_MINIMUM))
    pyrdma_missing(
      "g++-${PYRDMA_GCC_MINIMUM}"
      "GCC ${PYRDMA_GCC_MINIMUM} or Clang ${PYRDMA_CLANG_MINIMUM} (found ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}; point CXX at the newer one)")
  endif()

  set(THREADS_PREFER_PTHREAD_FLAG ON)
  find_package(Threads REQUIRED)

  # Static, so that the module depends only on libc and libstdc++.
  set(Boost_USE_STATIC_LIBS ON)
  find_package(Boost 1.74 CONFIG QUIET COMPONENTS context)
  if(NOT TARGET Boost::context)
    pyrdma_missing(libboost-context-dev "Boost.Context 1.74 or newer (fibers of the simulator)")
  endif()

  if(PYRDMA_TESTS)
    find_package(GTest QUIET)
    if(NOT TARGET GTest::gtest_main)
      pyrdma_missing(libgtest-dev "GoogleTest (PYRDMA_TESTS is on)")
    endif()
  endif()

  if(PYRDMA_PYTHON)
    find_package(Python 3.10 QUIET COMPONENTS Interpreter Development.Module)
    if(NOT Python_Development.Module_FOUND)
      pyrdma_missing(python3-dev "the headers of Python 3.10 or newer (PYRDMA_PYTHON is on)")
    endif()
  endif()

  if(PYRDMA_VERBS)
    pyrdma_find_verbs()
  endif()

  pyrdma_stop_if_missing()

  if(PYRDMA_PYTHON)
    # A plain CMake build has no pip to install pybind11; the interpreter may have it.
    if(NOT pybind11_DIR)
      execute_process(
        COMMAND "${Python_EXECUTABLE}" -c "import pybind11; print(pybind11.get_cmake_dir())"
        OUTPUT_VARIABLE pybind11_hint
        OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    endif()
    find_package(pybind11 3.0 CONFIG QUIET HINTS "${pybind11_hint}")
    if(NOT pybind11_FOUND)
      message(FATAL_ERROR "pybind11 3.0 or newer is missing for ${Python_EXECUTABLE}. Install with:\n\n"
                          "    ${Python_EXECUTABLE} -m pip install 'pybind11>=3.0'\n\n"
                          "or build without Python: -DPYRDMA_PYTHON=OFF\n")
    endif()
  endif()
endmacro()
