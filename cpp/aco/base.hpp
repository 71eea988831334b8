// SPDX-License-Identifier: Apache-2.0
/*
 * The base of all headers of aco.hpp: the dialect, and the namespace of the configuration.
 */
#ifndef ACO_BASE_HPP
#define ACO_BASE_HPP

#if __cplusplus < 201703L
#error "aco.hpp needs C++17: compile with -std=c++17 or later"
#endif

/*
 * Classes and functions differ without exceptions. An inline namespace gives them other symbols, so
 * that a program may have files of both kinds. It does not link if one passes an object of aco to
 * another kind.
 */
#ifdef __cpp_exceptions
#define ACO_I_BEGIN
#define ACO_I_END
#else
#define ACO_I_BEGIN inline namespace no_exceptions {
#define ACO_I_END }
#endif

#endif
