include(${CMAKE_CURRENT_LIST_DIR}/fluxon-targets.cmake)
# fluxon.hpp needs C++20. A project in C alone knows no features of C++, and CMake would refuse to ask it for one.
get_property(fluxon_languages GLOBAL PROPERTY ENABLED_LANGUAGES)
if("CXX" IN_LIST fluxon_languages)
  set_property(TARGET fluxon::fluxon APPEND PROPERTY INTERFACE_COMPILE_FEATURES cxx_std_20)
endif()
unset(fluxon_languages)
