// SPDX-License-Identifier: Apache-2.0
//! The generator crate's local generators, as the workloads of this package want them. What such
//! a generator yields and what it returns are of one type: None and the value.

use generator::{Gn, LocalGenerator, Scope};
use peers::{Body, Yield};

struct Generator(LocalGenerator<'static, (), Option<u64>>);

struct Own<'a, 'scope, 'body>(&'a mut Scope<'scope, 'body, (), Option<u64>>);

impl Yield for Own<'_, '_, '_> {
    fn suspend(&mut self) {
        self.0.yield_with(None);
    }
}

impl peers::Coroutine for Generator {
    fn new<B: Body>(stack_bytes: usize, body: B) -> Self {
        let words = stack_bytes / std::mem::size_of::<usize>();
        Generator(Gn::new_scoped_opt_local(words, move |mut scope| {
            Some(body.run(&mut Own(&mut scope)))
        }))
    }

    fn renew<B: Body>(mut self, body: B) -> Self {
        self.0
            .scoped_init(move |mut scope| Some(body.run(&mut Own(&mut scope))));
        self
    }

    fn resume(&mut self) -> Option<u64> {
        self.0.resume().flatten()
    }
}

fn main() {
    peers::main::<Generator>();
}
