// SPDX-License-Identifier: Apache-2.0
//! The generator crate's local generators, each on a new stack, or pooled ones with a new body: in
//! this crate a generator lies on its stack.

use generator::{Gn, LocalGenerator, Scope};
use peers::{Body, Coroutine, Pool, Yield};
use std::mem::{size_of, ManuallyDrop};

struct Own<'a, 'scope, 'body>(&'a mut Scope<'scope, 'body, (), ()>);

impl Yield for Own<'_, '_, '_> {
    fn suspend(&mut self) {
        self.0.yield_with(());
    }
}

struct Fresh(LocalGenerator<'static, (), ()>);

impl Coroutine for Fresh {
    fn new<B: Body>(stack_bytes: usize, body: B) -> Self {
        let words = stack_bytes / size_of::<usize>();
        Fresh(Gn::new_scoped_opt_local(words, move |mut scope| {
            body.run(&mut Own(&mut scope))
        }))
    }

    fn resume(&mut self) {
        self.0.resume();
    }
}

struct Pooled(ManuallyDrop<Fresh>);

static POOL: Pool<Fresh> = Pool::new();

impl Coroutine for Pooled {
    fn new<B: Body>(stack_bytes: usize, body: B) -> Self {
        let Some(mut generator) = POOL.take() else {
            return Pooled(ManuallyDrop::new(Fresh::new(stack_bytes, body)));
        };
        generator
            .0
            .scoped_init(move |mut scope| body.run(&mut Own(&mut scope)));
        Pooled(ManuallyDrop::new(generator))
    }

    fn resume(&mut self) {
        self.0.resume();
    }
}

impl Drop for Pooled {
    /// A suspended one is unwound.
    fn drop(&mut self) {
        let mut generator = unsafe { ManuallyDrop::take(&mut self.0) };
        if !generator.0.is_done() {
            generator.0.cancel();
        }
        POOL.put(generator);
    }
}

fn main() {
    peers::main::<Fresh, Pooled>();
}
