# Installs the library, its headers and a CMake package, so that a user's own C++ workload is built
# against the files that the Python package runs. In a wheel all of it lies inside the folder of the
# package.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(SKBUILD)
  set(install_root "pyrdma/")
  set(CMAKE_INSTALL_LIBDIR lib)
  if(TARGET _core)
    install(TARGETS _core LIBRARY DESTINATION pyrdma)
  endif()
else()
  set(install_root "")
endif()

set(cmake_dir "${install_root}${CMAKE_INSTALL_LIBDIR}/cmake/pyrdma")

target_include_directories(pyrdma_native
                           PUBLIC $<INSTALL_INTERFACE:${install_root}include/pyrdma>)
install(
  TARGETS pyrdma_native
  EXPORT pyrdmaTargets
  ARCHIVE DESTINATION "${install_root}${CMAKE_INSTALL_LIBDIR}")

foreach(header IN LISTS native_headers)
  file(RELATIVE_PATH relative "${CMAKE_CURRENT_SOURCE_DIR}" "${header}")
  get_filename_component(folder "${relative}" DIRECTORY)
  install(FILES "${header}" DESTINATION "${install_root}include/pyrdma/${folder}")
endforeach()

install(
  EXPORT pyrdmaTargets
  NAMESPACE pyrdma::
  DESTINATION "${cmake_dir}")

configure_package_config_file(
  pyrdmaConfig.cmake.in "${CMAKE_CURRENT_BINARY_DIR}/pyrdmaConfig.cmake"
  INSTALL_DESTINATION "${cmake_dir}")
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/pyrdmaConfig.cmake" DESTINATION "${cmake_dir}")
