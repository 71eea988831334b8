// SPDX-License-Identifier: Apache-2.0
//! corosensei's coroutines, as the workloads of this package want them.

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use peers::{Body, Yield};

struct Corosensei(Coroutine<(), (), u64>);

struct Own<'a>(&'a Yielder<(), ()>);

impl Yield for Own<'_> {
    fn suspend(&mut self) {
        self.0.suspend(());
    }
}

fn on<B: Body>(stack: DefaultStack, body: B) -> Corosensei {
    Corosensei(Coroutine::with_stack(stack, |yielder, ()| {
        body.run(&mut Own(yielder))
    }))
}

impl peers::Coroutine for Corosensei {
    fn new<B: Body>(stack_bytes: usize, body: B) -> Self {
        on(
            DefaultStack::new(stack_bytes).expect("no memory for a stack"),
            body,
        )
    }

    fn renew<B: Body>(self, body: B) -> Self {
        on(self.0.into_stack(), body)
    }

    fn resume(&mut self) -> Option<u64> {
        match self.0.resume(()) {
            CoroutineResult::Yield(()) => None,
            CoroutineResult::Return(value) => Some(value),
        }
    }
}

fn main() {
    peers::main::<Corosensei>();
}
