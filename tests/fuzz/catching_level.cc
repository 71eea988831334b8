// SPDX-License-Identifier: Apache-2.0
/*
 * A level of recursion in C++, for fuzz_programs.c: it has an object whose destructor may yield,
 * and a catch block that lets everything pass. Relies on no header.
 */
namespace {

class Object {
public:
    Object(void (*leave)(void *), void *level) : leave_(leave), level_(level)
    {
    }
    ~Object() noexcept(false)
    {
        leave_(level_);
    }
    Object(const Object &) = delete;
    Object &operator=(const Object &) = delete;

private:
    void (*leave_)(void *);
    void *level_;
};

/* In a frame of its own: one that has a catch block as well does not end the cleanup, but goes on
 * there. */
__attribute__((noinline)) void follow_with_object(void (*follow)(void *), void (*leave)(void *),
                                                  void *level)
{
    Object object(leave, level);
    follow(level);
}

} // namespace

extern "C" void catching_level(void (*follow)(void *), void (*leave)(void *), void *level);

extern "C" void catching_level(void (*follow)(void *), void (*leave)(void *), void *level)
{
    try {
        follow_with_object(follow, leave, level);
    } catch (...) {
        throw;
    }
}
