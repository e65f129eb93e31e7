//! Workload files of COSBench, as its user guide (0.4) and its own resolver describe them. What this does not know is refused.
//!
//! A workload is a sequence of stages; the works of a stage run at the same time, each with its own workers; a worker does the operations of
//! its work in proportion to their ratios.

mod document;
mod parameters;
mod run;
mod selector;
mod source;

pub(crate) use run::run;
