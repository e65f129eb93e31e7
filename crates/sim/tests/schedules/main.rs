//! What threads do to each other between two awaits, which the simulation cannot see: parts of the worker, and all of
//! it, under many schedules. See `docs/schedules.md`.

mod cache;
mod catalog;
mod explore;
mod store;
mod under_store;
