//! The cache as its users see it: a real one on a disk in memory, before an under store in memory.

mod buckets;
mod cancel;
mod checksums;
mod completions;
mod conditional;
mod copies;
mod faults;
mod inspect;
mod job_findings;
mod job_runs;
mod jobs;
mod listing;
mod modes;
mod multipart;
mod outside;
mod policies;
mod reads;
mod restart;
mod shares;
mod space;
mod support;
mod tags;
mod upload_pages;
