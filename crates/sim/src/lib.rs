//! The whole worker in one thread, from one seed: its clock, randomness, disks and under store are simulated, its
//! clients are made up, and what they see is checked against a model. See `docs/simulation.md`.

mod checks;
mod client;
mod clock;
mod content;
mod copies;
mod directories;
mod disk;
mod engine;
mod history;
mod life;
mod linear;
mod machine;
mod moves;
mod plan;
mod rules;
mod run;
mod shrink;
mod under_store;
mod world;

pub use plan::Plan;
pub use run::{BrokenPromise, Report, run};
pub use shrink::shrink;
