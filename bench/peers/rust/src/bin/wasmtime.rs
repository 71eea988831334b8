// SPDX-License-Identifier: Apache-2.0
//! The fibers of Wasmtime, each on a new stack, or on a pooled one. A suspended one is not unwound
//! when it is dropped.

use peers::{Body, Coroutine, Pool, Yield};
use std::mem::ManuallyDrop;
use wasmtime::{Fiber, FiberStack, Suspend};

struct Own<'a>(&'a mut Suspend<(), (), ()>);

impl Yield for Own<'_> {
    fn suspend(&mut self) {
        self.0.suspend(());
    }
}

fn fiber<B: Body>(stack: FiberStack, body: B) -> Fiber<'static, (), (), ()> {
    Fiber::new(stack, move |(), suspend| body.run(&mut Own(suspend))).expect("no fiber")
}

fn stack(bytes: usize) -> FiberStack {
    FiberStack::new(bytes, false).expect("no memory for a stack")
}

struct Fresh(Fiber<'static, (), (), ()>);

impl Coroutine for Fresh {
    fn new<B: Body>(stack_bytes: usize, body: B) -> Self {
        Fresh(fiber(stack(stack_bytes), body))
    }

    fn resume(&mut self) {
        let _ = self.0.resume(());
    }
}

/// A fiber on the memory of a stack that is kept.
struct Pooled {
    fiber: Fiber<'static, (), (), ()>,
    kept: ManuallyDrop<FiberStack>,
}

static POOL: Pool<FiberStack> = Pool::new();

impl Coroutine for Pooled {
    fn new<B: Body>(stack_bytes: usize, body: B) -> Self {
        let kept = POOL.take().unwrap_or_else(|| stack(stack_bytes));
        let guard = kept.guard_range().expect("a stack has a guard page");
        let bytes = kept.range().expect("a stack has a range").len();
        let guard_bytes = guard.end as usize - guard.start as usize;
        let lent = unsafe { FiberStack::from_raw_parts(guard.start, guard_bytes, bytes) };
        Pooled {
            fiber: fiber(lent.expect("a stack of a fiber"), body),
            kept: ManuallyDrop::new(kept),
        }
    }

    fn resume(&mut self) {
        let _ = self.fiber.resume(());
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        POOL.put(unsafe { ManuallyDrop::take(&mut self.kept) });
    }
}

fn main() {
    peers::main::<Fresh, Pooled>();
}
