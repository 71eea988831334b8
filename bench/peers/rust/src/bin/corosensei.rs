// SPDX-License-Identifier: Apache-2.0
//! corosensei's coroutines, each on a new stack of the crate's default kind, or on a pooled one.

use corosensei::stack::{DefaultStack, Stack, StackPointer};
use corosensei::{Coroutine, Yielder};
use peers::{Body, Pool, Yield};
use std::mem::ManuallyDrop;

struct Own<'a>(&'a Yielder<(), ()>);

impl Yield for Own<'_> {
    fn suspend(&mut self) {
        self.0.suspend(());
    }
}

struct Corosensei<S: Stack>(Coroutine<(), (), (), S>);

trait Made: Stack + 'static {
    fn made(bytes: usize) -> Self;
}

impl<S: Made> peers::Coroutine for Corosensei<S> {
    fn new<B: Body>(stack_bytes: usize, body: B) -> Self {
        Corosensei(Coroutine::with_stack(
            S::made(stack_bytes),
            move |yielder, ()| body.run(&mut Own(yielder)),
        ))
    }

    fn resume(&mut self) {
        self.0.resume(());
    }
}

impl Made for DefaultStack {
    fn made(bytes: usize) -> Self {
        DefaultStack::new(bytes).expect("no memory for a stack")
    }
}

// ---- Pooled stacks -----------------------------------------------------------------------------

/// The tops of the stacks lie in different sets of the caches, as those of aco's pool do.
const COLOURS: usize = 40;
const CACHE_LINE_BYTES: usize = 64;

struct Coloured {
    stack: DefaultStack,
    top: StackPointer,
}

static POOL: Pool<Coloured> = Pool::new();

fn coloured(bytes: usize) -> Coloured {
    static mut MADE_CT: usize = 0;
    let stack = DefaultStack::made(bytes + COLOURS * CACHE_LINE_BYTES);
    let colour = unsafe {
        MADE_CT += 1;
        MADE_CT % COLOURS
    };
    let top = StackPointer::new(stack.base().get() - colour * CACHE_LINE_BYTES);
    Coloured {
        stack,
        top: top.expect("a stack ends above 0"),
    }
}

struct Pooled(ManuallyDrop<Coloured>);

unsafe impl Stack for Pooled {
    fn base(&self) -> StackPointer {
        self.0.top
    }

    fn limit(&self) -> StackPointer {
        self.0.stack.limit()
    }
}

impl Made for Pooled {
    fn made(bytes: usize) -> Self {
        Pooled(ManuallyDrop::new(
            POOL.take().unwrap_or_else(|| coloured(bytes)),
        ))
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        POOL.put(unsafe { ManuallyDrop::take(&mut self.0) });
    }
}

fn main() {
    peers::main::<Corosensei<DefaultStack>, Corosensei<Pooled>>();
}
