//! Locks and atomics for what threads share. With the feature `schedules` they are shuttle's, which decides at each of
//! them which thread runs next: see `docs/schedules.md`. What tokio offers for tasks (locks, channels, notifications)
//! is the same in both: a task that waits there gives way to others, and one that does not wait appears to do it in one
//! step.

#[cfg(not(feature = "schedules"))]
pub use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
#[cfg(not(feature = "schedules"))]
pub use std::{hint::spin_loop, sync::atomic};

#[cfg(feature = "schedules")]
pub use scheduled::{Mutex, RwLock, RwLockWriteGuard};
#[cfg(feature = "schedules")]
pub use shuttle::{hint::spin_loop, sync::atomic};

/// Shuttle's locks with the interface of `parking_lot`. A panic in a holder ends the run, so poisoning does not matter
/// here.
#[cfg(feature = "schedules")]
mod scheduled {
    use std::sync::PoisonError;

    use shuttle::sync::{MutexGuard, RwLockReadGuard};

    pub use shuttle::sync::RwLockWriteGuard;

    #[derive(Debug, Default)]
    pub struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub fn into_inner(self) -> T {
            self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    #[derive(Debug, Default)]
    pub struct RwLock<T>(shuttle::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub fn new(value: T) -> Self {
            Self(shuttle::sync::RwLock::new(value))
        }

        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(PoisonError::into_inner)
        }

        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(PoisonError::into_inner)
        }
    }
}
