// SPDX-License-Identifier: Apache-2.0
//! Skynet: a coroutine makes ten others, each of them ten more, down to the leaves; every leaf is
//! a number, every other one adds up what its children found. Coroutines that have ended lend
//! their stacks to new ones.

use crate::{check, Body, Coroutine, Yield, STACK_BYTES};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const CHILDREN: u64 = 10;

/// The leaves below a coroutine: a leaf itself where there is one.
#[derive(Clone, Copy)]
struct Leaves {
    first: u64,
    ct: u64,
}

impl Leaves {
    fn all(ct: u64) -> Self {
        let mut rest = ct;
        while rest % CHILDREN == 0 {
            rest /= CHILDREN;
        }
        check(rest == 1, "the leaves of skynet are a power of ten");
        Leaves { first: 0, ct }
    }

    fn children(self) -> [Leaves; CHILDREN as usize] {
        let ct = self.ct / CHILDREN;
        std::array::from_fn(|child| Leaves {
            first: self.first + child as u64 * ct,
            ct,
        })
    }
}

type Ended<C> = Rc<RefCell<Vec<C>>>;

fn start<C: Coroutine, B: Body>(ended: &Ended<C>, body: B) -> C {
    let lent = ended.borrow_mut().pop();
    match lent {
        Some(co) => co.renew(body),
        None => C::new(STACK_BYTES, body),
    }
}

// ---- Nested: a parent makes its ten children, then resumes one after the other -----------------

struct Nested<C> {
    leaves: Leaves,
    ended: Ended<C>,
}

impl<C: Coroutine> Body for Nested<C> {
    fn run<Y: Yield>(self, _: &mut Y) -> u64 {
        if self.leaves.ct == 1 {
            return self.leaves.first;
        }
        let children = self
            .leaves
            .children()
            .map(|leaves| nested_co(leaves, &self.ended));
        children
            .map(|child| value_of(child, &self.ended))
            .iter()
            .sum()
    }
}

fn nested_co<C: Coroutine>(leaves: Leaves, ended: &Ended<C>) -> C {
    start(
        ended,
        Nested {
            leaves,
            ended: ended.clone(),
        },
    )
}

fn value_of<C: Coroutine>(mut child: C, ended: &Ended<C>) -> u64 {
    let value = child.resume().expect("a child that only returns");
    ended.borrow_mut().push(child);
    value
}

pub fn nested<C: Coroutine>(leaves: u64) -> u64 {
    let ended = Ended::<C>::default();
    value_of(nested_co(Leaves::all(leaves), &ended), &ended)
}

// ---- By a scheduler: a parent waits until its last child has reported --------------------------

struct Task<C> {
    leaves: Leaves,
    parent: Option<Rc<Task<C>>>,
    co: Cell<Option<C>>,
    waits_for: Cell<u64>,
    sum: Cell<u64>,
}

/// The last made runnable runs first, so that few stacks are in use at a time.
type Runnable<C> = Rc<RefCell<Vec<Rc<Task<C>>>>>;

struct Scheduled<C> {
    task: Rc<Task<C>>,
    runnable: Runnable<C>,
}

fn spawn<C>(runnable: &Runnable<C>, leaves: Leaves, parent: Option<Rc<Task<C>>>) {
    runnable.borrow_mut().push(Rc::new(Task {
        leaves,
        parent,
        co: Cell::new(None),
        waits_for: Cell::new(0),
        sum: Cell::new(0),
    }));
}

impl<C: Coroutine> Body for Scheduled<C> {
    fn run<Y: Yield>(self, own: &mut Y) -> u64 {
        if self.task.leaves.ct == 1 {
            return self.task.leaves.first;
        }
        self.task.waits_for.set(CHILDREN);
        for leaves in self.task.leaves.children() {
            spawn(&self.runnable, leaves, Some(self.task.clone()));
        }
        own.suspend();
        self.task.sum.get()
    }
}

/// Adds what a child found to its parent, which is runnable again after the last one.
fn report<C>(runnable: &Runnable<C>, parent: &Rc<Task<C>>, found: u64) {
    parent.sum.set(parent.sum.get() + found);
    parent.waits_for.set(parent.waits_for.get() - 1);
    if parent.waits_for.get() == 0 {
        runnable.borrow_mut().push(parent.clone());
    }
}

pub fn scheduled<C: Coroutine>(leaves: u64) -> u64 {
    let (runnable, ended) = (Runnable::<C>::default(), Ended::<C>::default());
    spawn(&runnable, Leaves::all(leaves), None);
    let mut total = 0;
    loop {
        let Some(task) = runnable.borrow_mut().pop() else {
            break total;
        };
        let mut co = task.co.take().unwrap_or_else(|| {
            start(
                &ended,
                Scheduled {
                    task: task.clone(),
                    runnable: runnable.clone(),
                },
            )
        });
        match co.resume() {
            None => task.co.set(Some(co)),
            Some(found) => {
                ended.borrow_mut().push(co);
                match &task.parent {
                    Some(parent) => report(&runnable, parent, found),
                    None => total = found,
                }
            }
        }
    }
}
