# SPDX-License-Identifier: Apache-2.0
"""
The recipe for Conan 2: `conan create packaging/conan` from the root of the project. The version is
what aco.h says; the library is built by CMakeLists.txt. The options but for the usual ones are what
a program and the library must agree on; they get to programs with the package.
"""

import os
import re
from typing import Any

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rmdir

ROOT = os.path.join("..", "..")
CONFIGURATION = {
    "share_fpu_mxcsr_env": "ACO_CONFIG_SHARE_FPU_MXCSR_ENV",
    "list": "ACO_CONFIG_LIST",
    "stress": "ACO_CONFIG_STRESS",
}


class AcoRecipe(ConanFile):
    name = "aco"
    description = "asymmetric coroutines for C and C++"
    license = "Apache-2.0"
    topics = ("coroutine", "concurrency", "stack")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options: Any = {"shared": [True, False], "fPIC": [True, False],
                    **{option: [True, False] for option in CONFIGURATION}}
    default_options = {"shared": False, "fPIC": True, **dict.fromkeys(CONFIGURATION, False)}
    implements = ["auto_shared_fpic"]
    languages = ["C"]

    def set_version(self) -> None:
        header = load(self, os.path.join(self.recipe_folder, ROOT, "aco.h"))
        version = r"^#define ACO_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)"
        parts = re.findall(version, header, re.MULTILINE)
        self.version = ".".join(parts)

    def export_sources(self) -> None:
        root = os.path.join(self.recipe_folder, ROOT)
        for pattern in ("aco*.[hc]", "acosw.S", "CMakeLists.txt", "LICENSE",
                        "extra/*/aco_*.[hc]", "runtime/*.h", "runtime/*/*.[hc]", "cpp/*.hpp",
                        "cpp/aco/*.hpp", "hooks/*.[hc]", "compat/*.h",
                        "compat/*.cc", "pthreads/*.[hc]", "pthreads/aco-run", "packaging/*.pc.in",
                        "packaging/cmake/*", "packaging/installed", "packaging/*.map",
                        "tools/libraries", "tools/warnings", "tools/gdb/*.py", "tools/trace/*.bt"):
            copy(self, pattern, root, self.export_sources_folder)

    def layout(self) -> None:
        cmake_layout(self)

    def generate(self) -> None:
        toolchain = CMakeToolchain(self)
        for option, macro in CONFIGURATION.items():
            toolchain.cache_variables[macro] = bool(self.options.get_safe(option))
        toolchain.generate()

    def build(self) -> None:
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self) -> None:
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        # Conan writes these anew for each project that asks for the package.
        rmdir(self, os.path.join(self.package_folder, "lib", "cmake"))
        rmdir(self, os.path.join(self.package_folder, "lib", "pkgconfig"))

    def package_info(self) -> None:
        # The names that projects know; what stands for the whole package needs one of its own.
        self.cpp_info.set_property("cmake_target_name", "aco::all")
        self.cpp_info.set_property("pkg_config_name", "aco-all")
        core = self.cpp_info.components["core"]
        core.set_property("cmake_target_name", "aco::aco")
        core.set_property("pkg_config_name", "aco")
        core.libs = ["aco"]
        core.system_libs = ["pthread"]
        core.defines = [macro for option, macro in CONFIGURATION.items()
                        if self.options.get_safe(option)]
        if os.path.exists(os.path.join(self.package_folder, "include", "aco_runtime.h")):
            runtime = self.cpp_info.components["runtime"]
            runtime.set_property("pkg_config_name", "aco-runtime")
            runtime.libs = ["aco_runtime"]
            runtime.requires = ["core"]
            hooks = self.cpp_info.components["hooks"]
            hooks.set_property("pkg_config_name", "aco-hooks")
            hooks.libs = ["aco_hooks"]
            hooks.system_libs = ["dl"]
            hooks.requires = ["runtime"]
            # As in aco-hooks.pc.in, which says why.
            directory = os.path.join(self.package_folder, "lib")
            hooks.exelinkflags = hooks.sharedlinkflags = [
                f"-Wl,-L{directory},-u,aco_hooks_active,"
                "--push-state,--no-as-needed,-laco_hooks,--pop-state"]
            pthreads = self.cpp_info.components["pthreads"]
            pthreads.set_property("pkg_config_name", "aco-pthreads")
            pthreads.libs = ["aco_pthreads"]
            pthreads.exelinkflags = pthreads.sharedlinkflags = [
                f"-Wl,-L{directory},--push-state,--no-as-needed,-laco_pthreads,--pop-state"]
        if os.path.exists(os.path.join(self.package_folder, "include", "aco", "compat")):
            compat = self.cpp_info.components["compat"]
            compat.set_property("pkg_config_name", "aco-compat")
            compat.includedirs = [os.path.join("include", "aco", "compat")]
            compat.libs = ["aco_compat"]
            compat.requires = ["hooks"]
