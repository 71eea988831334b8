# SPDX-License-Identifier: Apache-2.0
#
# Carries out a port without vcpkg, to test it: `cmake -DPORT=DIR -DPACKAGE=DIR -DFEATURES=LIST -P
# steps.cmake` makes in PACKAGE what vcpkg would, for Linux, from the portfile in PORT. It defines
# what portfiles call, as far as ours does and as vcpkg documents it: build and install once for
# Release and once, below debug/, for Debug; then move what CMake and pkg-config look for.
cmake_minimum_required(VERSION 3.19)

set(CURRENT_PORT_DIR "${PORT}")
set(CURRENT_PACKAGES_DIR "${PACKAGE}")
set(BUILD_DIR "${PACKAGE}-build")
set(PARTS_Release "")
set(PARTS_Debug "/debug")

function(run)
    execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(vcpkg_check_features)
    cmake_parse_arguments(arg "" OUT_FEATURE_OPTIONS FEATURES ${ARGN})
    while(arg_FEATURES)
        list(POP_FRONT arg_FEATURES feature macro)
        if(feature IN_LIST FEATURES)
            list(APPEND options -D${macro}=ON)
        else()
            list(APPEND options -D${macro}=OFF)
        endif()
    endwhile()
    set(${arg_OUT_FEATURE_OPTIONS} ${options} PARENT_SCOPE)
endfunction()

function(vcpkg_cmake_configure)
    cmake_parse_arguments(arg "" SOURCE_PATH OPTIONS ${ARGN})
    foreach(kind Release Debug)
        run(${CMAKE_COMMAND} -S ${arg_SOURCE_PATH} -B ${BUILD_DIR}/${kind}
            -DCMAKE_BUILD_TYPE=${kind} -DBUILD_SHARED_LIBS=OFF -DCMAKE_INSTALL_LIBDIR=lib
            -DCMAKE_INSTALL_PREFIX=${CURRENT_PACKAGES_DIR}${PARTS_${kind}} ${arg_OPTIONS})
    endforeach()
endfunction()

function(vcpkg_cmake_install)
    foreach(kind Release Debug)
        run(${CMAKE_COMMAND} --build ${BUILD_DIR}/${kind})
        run(${CMAKE_COMMAND} --install ${BUILD_DIR}/${kind})
    endforeach()
endfunction()

# The package's files for CMake go to share/; those for Debug, which have names of their own, too.
function(vcpkg_cmake_config_fixup)
    cmake_parse_arguments(arg "" "PACKAGE_NAME;CONFIG_PATH" "" ${ARGN})
    set(share ${CURRENT_PACKAGES_DIR}/share/${arg_PACKAGE_NAME})
    file(GLOB files ${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH}/*)
    file(COPY ${files} DESTINATION ${share})
    file(REMOVE_RECURSE ${CURRENT_PACKAGES_DIR}/lib/cmake)
    file(GLOB files ${CURRENT_PACKAGES_DIR}/debug/${arg_CONFIG_PATH}/*-debug.cmake)
    foreach(file ${files})
        get_filename_component(name ${file} NAME)
        file(READ ${file} text)
        string(REPLACE "\${_IMPORT_PREFIX}/lib" "\${_IMPORT_PREFIX}/debug/lib" text "${text}")
        file(WRITE ${share}/${name} "${text}")
    endforeach()
    file(REMOVE_RECURSE ${CURRENT_PACKAGES_DIR}/debug/lib/cmake)
    # In share/aco the prefix is two directories up, in lib/cmake/aco it was three.
    file(READ ${share}/${arg_PACKAGE_NAME}-targets.cmake text)
    set(up "get_filename_component(_IMPORT_PREFIX \"\${_IMPORT_PREFIX}\" PATH)\n")
    string(REPLACE "${up}${up}${up}" "${up}${up}" text "${text}")
    file(WRITE ${share}/${arg_PACKAGE_NAME}-targets.cmake "${text}")
endfunction()

function(vcpkg_fixup_pkgconfig)
    foreach(kind Release Debug)
        file(GLOB files ${CURRENT_PACKAGES_DIR}${PARTS_${kind}}/lib/pkgconfig/*.pc)
        foreach(file ${files})
            file(READ ${file} text)
            string(REPLACE "prefix=${CURRENT_PACKAGES_DIR}${PARTS_${kind}}\n"
                "prefix=\${pcfiledir}/../..\n" text "${text}")
            string(REPLACE "${CURRENT_PACKAGES_DIR}${PARTS_${kind}}" "\${prefix}" text "${text}")
            file(WRITE ${file} "${text}")
        endforeach()
    endforeach()
endfunction()

function(vcpkg_install_copyright)
    cmake_parse_arguments(arg "" "" FILE_LIST ${ARGN})
    file(COPY ${arg_FILE_LIST} DESTINATION ${CURRENT_PACKAGES_DIR}/share/aco)
    file(RENAME ${CURRENT_PACKAGES_DIR}/share/aco/LICENSE
        ${CURRENT_PACKAGES_DIR}/share/aco/copyright)
endfunction()

include(${PORT}/portfile.cmake)
