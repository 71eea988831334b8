# SPDX-License-Identifier: Apache-2.0
#
# The port for vcpkg, built from the project that it lies in, so for use as an overlay:
# `vcpkg install aco --overlay-ports=packaging/vcpkg` from its root.
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../../.." ABSOLUTE)

vcpkg_check_features(OUT_FEATURE_OPTIONS options FEATURES
    list ACO_CONFIG_LIST
    runtime ACO_RUNTIME
    share-fpu-mxcsr-env ACO_CONFIG_SHARE_FPU_MXCSR_ENV)
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}" OPTIONS ${options})
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME aco CONFIG_PATH lib/cmake/aco)
vcpkg_fixup_pkgconfig()

# Packages of vcpkg are for programs that are built: they have no programs themselves.
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share"
    "${CURRENT_PACKAGES_DIR}/bin" "${CURRENT_PACKAGES_DIR}/debug/bin")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
