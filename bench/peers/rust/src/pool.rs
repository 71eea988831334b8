// SPDX-License-Identifier: Apache-2.0
//! A pool: what coroutines leave when they are destroyed is for the next ones.

use std::cell::UnsafeCell;

/// The last one put back is taken first. Relies on one thread using it.
pub struct Pool<T>(UnsafeCell<Vec<T>>);

unsafe impl<T> Sync for Pool<T> {}

impl<T> Pool<T> {
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Pool(UnsafeCell::new(Vec::new()))
    }

    pub fn take(&self) -> Option<T> {
        unsafe { &mut *self.0.get() }.pop()
    }

    pub fn put(&self, left: T) {
        unsafe { &mut *self.0.get() }.push(left);
    }
}
