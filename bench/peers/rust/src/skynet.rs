// SPDX-License-Identifier: Apache-2.0
//! Skynet: a coroutine makes ten others, each of them ten more, down to the leaves; every leaf is
//! a number, every other one adds up what its children found.

use crate::{Body, Coroutine, Yield, STACK_BYTES};
use std::marker::PhantomData;
use std::ptr::null_mut;

pub(crate) const CHILDREN: u64 = 10;

/// A body of a task, that is a pointer to it. The task outlives its coroutine.
macro_rules! body {
    ($name:ident, |$task:ident, $own:ident| $run:block) => {
        struct $name<C>(*mut Task<C>);

        impl<C> Clone for $name<C> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<C> Copy for $name<C> {}

        impl<C: Coroutine> Body for $name<C> {
            fn run<Y: Yield>(self, $own: &mut Y) {
                let $task = self.0;
                unsafe { $run }
            }
        }
    };
}

struct Task<C> {
    first: u64, // number of the first leaf below
    ct: u64,    // leaves below; a leaf itself where it is 1
    sum: u64,
    // By scheduler only.
    parent: *mut Task<C>,
    next: *mut Task<C>, // in the run queue
    queue: *mut Queue<C>,
    co: Option<C>,
    pending: u64, // children that have not reported yet
    is_done: bool,
}

impl<C: Coroutine> Task<C> {
    fn whole(leaves: u64, queue: *mut Queue<C>) -> Self {
        Task {
            first: 0,
            ct: leaves,
            sum: 0,
            parent: null_mut(),
            next: null_mut(),
            queue,
            co: None,
            pending: 0,
            is_done: false,
        }
    }

    fn child(&self, i: usize) -> Self {
        let ct = self.ct / CHILDREN;
        Task {
            first: self.first + i as u64 * ct,
            ..Task::whole(ct, self.queue)
        }
    }

    /// Those of ten children, which have one body or the other.
    fn start<Leaf: Body, Inner: Body>(&self, leaf: Leaf, inner: Inner) -> C {
        if self.ct == 1 {
            C::new(STACK_BYTES, leaf)
        } else {
            C::new(STACK_BYTES, inner)
        }
    }
}

// ---- Nested: a parent makes its ten children, then resumes one after the other -----------------

body!(NestedLeaf, |task, _own| {
    (*task).sum = (*task).first;
});

body!(NestedInner, |task, _own| {
    let mut tasks: [Task<C>; CHILDREN as usize] = std::array::from_fn(|i| (*task).child(i));
    let children = tasks.each_mut().map(|child| {
        let body = child as *mut Task<C>;
        child.start(NestedLeaf(body), NestedInner(body))
    });
    for (mut co, child) in children.into_iter().zip(&tasks) {
        co.resume();
        drop(co);
        (*task).sum += child.sum;
    }
});

pub fn nested<C: Coroutine>(leaves: u64) -> u64 {
    let mut root = Task::<C>::whole(leaves, null_mut());
    C::new(STACK_BYTES, NestedInner(&mut root)).resume();
    root.sum
}

// ---- By a scheduler: a parent waits until its last child has reported --------------------------

/// The tasks that wait, the newest first.
struct Queue<C>(*mut Task<C>, PhantomData<C>);

unsafe fn make_ready<C>(task: *mut Task<C>) {
    let queue = (*task).queue;
    (*task).next = (*queue).0;
    (*queue).0 = task;
}

unsafe fn report<C>(task: *mut Task<C>) {
    (*task).is_done = true;
    let parent = (*task).parent;
    if !parent.is_null() {
        (*parent).sum += (*task).sum;
        (*parent).pending -= 1;
        if (*parent).pending == 0 {
            make_ready(parent);
        }
    }
}

body!(ScheduledLeaf, |task, _own| {
    (*task).sum = (*task).first;
    report(task);
});

body!(ScheduledInner, |task, own| {
    let mut tasks: Box<[Task<C>; CHILDREN as usize]> =
        Box::new(std::array::from_fn(|i| (*task).child(i)));
    (*task).pending = CHILDREN;
    for child in tasks.iter_mut() {
        let body = child as *mut Task<C>;
        child.parent = task;
        child.co = Some(child.start(ScheduledLeaf(body), ScheduledInner(body)));
        make_ready(child);
    }
    own.suspend();
    drop(tasks);
    report(task);
});

pub fn scheduled<C: Coroutine>(leaves: u64) -> u64 {
    let mut queue = Queue(null_mut(), PhantomData);
    let mut root = Task::<C>::whole(leaves, &mut queue);
    let root: *mut Task<C> = &mut root;
    unsafe {
        (*root).co = Some(C::new(STACK_BYTES, ScheduledInner(root)));
        make_ready(root);
        while !queue.0.is_null() {
            let task = queue.0;
            queue.0 = (*task).next;
            if let Some(co) = &mut (*task).co {
                co.resume();
            }
            // Its parent frees it, but only when it is resumed itself.
            if (*task).is_done {
                (*task).co = None;
            }
        }
        (*root).sum
    }
}
