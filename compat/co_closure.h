// SPDX-License-Identifier: Apache-2.0
/*
 * Closures for C++ of any age.
 *
 *     co_ref(ref, total, mutex);       // an object that refers to up to 16 variables
 *     co_func(add, ref, i)             // a class with copies of up to 16 variables; in C++11, a
 *                                      // variable that is a reference refers to the same object
 *     {
 *         ref.total += i;
 *     }
 *     co_func_end;
 *     stCoClosure_t *closure = new add(ref, i);
 *     closure->exec();
 */
#ifndef CO_CLOSURE_H
#define CO_CLOSURE_H

struct stCoClosure_t {
    virtual void exec() = 0;
    virtual ~stCoClosure_t()
    {
    }
};

/* CO_I_EACH(m, sep, n, x, y...) is m(n, x) sep() m(n, y)... */
#define CO_I_COMMA() ,
#define CO_I_NOTHING()
#define CO_I_EACH_0(m, s, n)
#define CO_I_EACH_1(m, s, n, x) m(n, x)
#define CO_I_EACH_2(m, s, n, x, ...) m(n, x) s() CO_I_EACH_1(m, s, n, __VA_ARGS__)
#define CO_I_EACH_3(m, s, n, x, ...) m(n, x) s() CO_I_EACH_2(m, s, n, __VA_ARGS__)
#define CO_I_EACH_4(m, s, n, x, ...) m(n, x) s() CO_I_EACH_3(m, s, n, __VA_ARGS__)
#define CO_I_EACH_5(m, s, n, x, ...) m(n, x) s() CO_I_EACH_4(m, s, n, __VA_ARGS__)
#define CO_I_EACH_6(m, s, n, x, ...) m(n, x) s() CO_I_EACH_5(m, s, n, __VA_ARGS__)
#define CO_I_EACH_7(m, s, n, x, ...) m(n, x) s() CO_I_EACH_6(m, s, n, __VA_ARGS__)
#define CO_I_EACH_8(m, s, n, x, ...) m(n, x) s() CO_I_EACH_7(m, s, n, __VA_ARGS__)
#define CO_I_EACH_9(m, s, n, x, ...) m(n, x) s() CO_I_EACH_8(m, s, n, __VA_ARGS__)
#define CO_I_EACH_10(m, s, n, x, ...) m(n, x) s() CO_I_EACH_9(m, s, n, __VA_ARGS__)
#define CO_I_EACH_11(m, s, n, x, ...) m(n, x) s() CO_I_EACH_10(m, s, n, __VA_ARGS__)
#define CO_I_EACH_12(m, s, n, x, ...) m(n, x) s() CO_I_EACH_11(m, s, n, __VA_ARGS__)
#define CO_I_EACH_13(m, s, n, x, ...) m(n, x) s() CO_I_EACH_12(m, s, n, __VA_ARGS__)
#define CO_I_EACH_14(m, s, n, x, ...) m(n, x) s() CO_I_EACH_13(m, s, n, __VA_ARGS__)
#define CO_I_EACH_15(m, s, n, x, ...) m(n, x) s() CO_I_EACH_14(m, s, n, __VA_ARGS__)
#define CO_I_EACH_16(m, s, n, x, ...) m(n, x) s() CO_I_EACH_15(m, s, n, __VA_ARGS__)
/* The number of arguments after the first one. */
#define CO_I_18TH(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, ...) r
#define CO_I_COUNT(n, ...)                                                                         \
    CO_I_18TH(n, ##__VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0)
#define CO_I_JOIN_(a, b) a##b
#define CO_I_JOIN(a, b) CO_I_JOIN_(a, b)
#define CO_I_EACH(m, s, n, ...)                                                                    \
    CO_I_JOIN(CO_I_EACH_, CO_I_COUNT(n, ##__VA_ARGS__))(m, s, n, ##__VA_ARGS__)

/* A reference stays one, as in libco; before C++11 it is copied. */
#if __cplusplus >= 201103L
template <class T> struct co_i_copied_t {
    typedef const T &type;
};
template <class T> struct co_i_copied_t<T &> {
    typedef T &type;
};
#define CO_I_TYPE(n, x) typedef decltype(x) co_i_##n##_##x;
#define CO_I_COPIED(n, x) typename co_i_copied_t<co_i_##n##_##x>::type co_i_##x
#else
#define CO_I_TYPE(n, x) typedef __typeof__(x) co_i_##n##_##x;
#define CO_I_COPIED(n, x) const co_i_##n##_##x &co_i_##x
#endif
#define CO_I_COPY(n, x) co_i_##n##_##x x;
#define CO_I_REFERENCE(n, x) co_i_##n##_##x &x;
#define CO_I_REFERRED(n, x) co_i_##n##_##x &co_i_##x
#define CO_I_INIT(n, x) x(co_i_##x)
#define CO_I_AND_INIT(n, x) , x(co_i_##x)

#define co_ref(name, ...)                                                                          \
    CO_I_EACH(CO_I_TYPE, CO_I_NOTHING, name, __VA_ARGS__)                                          \
    struct co_i_ref_##name {                                                                       \
        CO_I_EACH(CO_I_REFERENCE, CO_I_NOTHING, name, __VA_ARGS__)                                 \
        co_i_ref_##name(CO_I_EACH(CO_I_REFERRED, CO_I_COMMA, name, __VA_ARGS__))                   \
            : CO_I_EACH(CO_I_INIT, CO_I_COMMA, name, __VA_ARGS__)                                  \
        {                                                                                          \
        }                                                                                          \
    } name(__VA_ARGS__)

/* The body of exec() follows, then co_func_end. */
#define co_func(name, ...)                                                                         \
    CO_I_EACH(CO_I_TYPE, CO_I_NOTHING, name, ##__VA_ARGS__)                                        \
    struct name : public stCoClosure_t {                                                           \
        CO_I_EACH(CO_I_COPY, CO_I_NOTHING, name, ##__VA_ARGS__)                                    \
        name(CO_I_EACH(CO_I_COPIED, CO_I_COMMA, name, ##__VA_ARGS__))                              \
            : stCoClosure_t() CO_I_EACH(CO_I_AND_INIT, CO_I_NOTHING, name, ##__VA_ARGS__)          \
        {                                                                                          \
        }                                                                                          \
        void exec()

#define co_func_end }

#endif
