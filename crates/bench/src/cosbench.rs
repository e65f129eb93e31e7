//! Workload files of COSBench, as described by its user guide (0.4) and its own resolver. What is not known here is
//! refused.
//!
//! A workload is a sequence of stages. The works of a stage run at the same time, each with its own workers. A worker
//! does the operations of its work in proportion to their ratios.

mod document;
mod parameters;
mod run;
mod selector;
mod source;

pub(crate) use run::run;
