//! What the workers of a work do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_env::Random;

use super::parameters::Parameters;
use super::selector::{Range, Selector, SizeSelector};
use crate::load::{Seat, Source};
use crate::s3::{Operation, Target};
use crate::workload::BATCH_MAX;

/// Ratios are in percent.
const RATIOS: u64 = 100;

/// What is divided among the workers of a work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Division {
    None,
    Container,
    Object,
}

impl Division {
    /// # Errors
    /// One line that names the text.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "container" => Ok(Self::Container),
            "object" => Ok(Self::Object),
            other => Err(format!("division={other:?} is not none, container or object")),
        }
    }
}

/// Names: what comes before and after a number.
#[derive(Debug)]
struct Names<Numbers> {
    prefix: String,
    numbers: Numbers,
    suffix: String,
}

impl<Numbers> Names<Numbers> {
    fn name(&self, number: u64) -> String {
        format!("{}{number}{}", self.prefix, self.suffix)
    }
}

/// Takes the names of containers (`c`) or objects (`o`) out of a configuration.
fn names<N>(
    parameters: &mut Parameters,
    what: &str,
    prefix: &str,
    parse: impl Fn(&str) -> Result<N, String>,
) -> Result<Names<N>, String> {
    let letter = &what[..1];
    let numbers = parse(&parameters.need(what)?).map_err(|problem| format!("{what}={problem}"))?;
    let prefix = parameters.take(&format!("{letter}prefix")).unwrap_or_else(|| prefix.to_owned());
    let suffix = parameters.take(&format!("{letter}suffix")).unwrap_or_default();
    Ok(Names { prefix, numbers, suffix })
}

const CONTAINERS: (&str, &str) = ("containers", "mycontainers");
const OBJECTS: (&str, &str) = ("objects", "myobjects");
/// Parameters that reads and deletions do not need, but may get from the element around them.
const FOR_OTHERS: [&str; 1] = ["sizes"];

#[derive(Debug)]
enum Action {
    Read,
    Write(SizeSelector),
    Delete,
    /// With objects, their names are the prefixes to list.
    List,
}

/// One operation of a work.
#[derive(Debug)]
pub(crate) struct Step {
    ratio: u64,
    division: Division,
    action: Action,
    containers: Names<Selector>,
    objects: Option<Names<Selector>>,
    /// `hashCheck`: whether what is read is compared with what was written.
    pub(crate) verify: bool,
    /// Operations so far, of each worker and of all.
    by_worker: Vec<AtomicU64>,
    by_all: AtomicU64,
}

impl Step {
    /// # Errors
    /// One line that names what is wrong.
    pub(crate) fn new(
        kind: &str,
        ratio: u64,
        division: Division,
        workers: u64,
        mut parameters: Parameters,
    ) -> Result<Self, String> {
        if ratio > RATIOS {
            return Err(format!("ratio={ratio} is more than {RATIOS}"));
        }
        let action = match kind {
            "read" => Action::Read,
            "write" => Action::Write(SizeSelector::parse(&parameters.need("sizes")?)?),
            "delete" => Action::Delete,
            "list" => Action::List,
            other => return Err(format!("operation type={other:?} is not read, write, delete or list")),
        };
        let containers = names(&mut parameters, CONTAINERS.0, CONTAINERS.1, Selector::parse)?;
        let has_objects = !matches!(action, Action::List) || parameters.clone().take(OBJECTS.0).is_some();
        let objects = has_objects.then(|| names(&mut parameters, OBJECTS.0, OBJECTS.1, Selector::parse)).transpose()?;
        parameters.leave(&FOR_OTHERS);
        parameters.leave(if has_objects { &[] } else { &["oprefix", "osuffix"] });
        let verify = content(&mut parameters)?;
        parameters.finish()?;
        let divided = match division {
            Division::None => None,
            Division::Container => containers.numbers.shares(),
            Division::Object => objects.as_ref().and_then(|objects| objects.numbers.shares()),
        };
        if let Some(shares) = divided.filter(|shares| *shares < workers) {
            return Err(format!("workers={workers} cannot share {shares} of what division names"));
        }
        let by_worker = (0..workers).map(|_| AtomicU64::new(0)).collect();
        Ok(Self { ratio, division, action, containers, objects, verify, by_worker, by_all: AtomicU64::new(0) })
    }

    fn operation(&self, seat: &Seat) -> Operation {
        let own = self.by_worker[seat.index].fetch_add(1, Ordering::Relaxed);
        let all = self.by_all.fetch_add(1, Ordering::Relaxed);
        let part = |division| match self.division == division {
            true => (seat.index as u64, seat.of as u64, own),
            false => (0, 1, all),
        };
        let name = |names: &Names<Selector>, (index, of, position)| {
            names.name(names.numbers.next(&seat.random, index, of, position))
        };
        let bucket: Arc<str> = name(&self.containers, part(Division::Container)).into();
        let key = self.objects.as_ref().map(|objects| name(objects, part(Division::Object))).unwrap_or_default();
        if matches!(self.action, Action::List) {
            return Operation::List { bucket, prefix: key, keys_max: BATCH_MAX, token: None };
        }
        let target = Target { bucket, key, version: 0 };
        match &self.action {
            Action::Write(sizes) => Operation::Put { target, size: sizes.next(&seat.random, all) },
            Action::Delete => Operation::Delete { target },
            Action::Read | Action::List => Operation::Get { target, size: None, range: None },
        }
    }
}

/// Content is random here, and never sent in chunks.
fn content(parameters: &mut Parameters) -> Result<bool, String> {
    parameters.only("content", "random")?;
    parameters.only("chunked", "false")?;
    parameters.flag("hashCheck", false)
}

/// The operations of a normal work.
#[derive(Debug)]
pub(crate) struct Steps(Vec<Step>);

impl Steps {
    /// # Errors
    /// One line, when the ratios do not add up to a whole.
    pub(crate) fn new(steps: Vec<Step>) -> Result<Self, String> {
        match steps.iter().map(|step| step.ratio).sum() {
            RATIOS => Ok(Self(steps)),
            sum => Err(format!("the ratios of its operations sum to {sum}, not to {RATIOS}")),
        }
    }

    pub(crate) fn verifies(&self) -> bool {
        self.0.iter().any(|step| step.verify)
    }
}

impl Source for Steps {
    fn next(&self, seat: &mut Seat) -> Option<Operation> {
        let mut at = seat.random.below(RATIOS);
        let step = self.0.iter().find(|step| {
            let is_here = at < step.ratio;
            at = at.saturating_sub(step.ratio);
            is_here
        });
        Some(step.expect("the ratios sum to all").operation(seat))
    }
}

/// What a special work does to all of its containers or objects, once.
#[derive(Debug)]
enum Sweeping {
    Init,
    Prepare(SizeSelector),
    Cleanup,
    Dispose,
}

/// A work of type init, prepare, cleanup or dispose.
#[derive(Debug)]
pub(crate) struct Sweep {
    sweeping: Sweeping,
    containers: Names<Range>,
    objects: Names<Range>,
}

impl Sweep {
    /// # Errors
    /// One line that names what is wrong.
    pub(crate) fn new(kind: &str, mut parameters: Parameters) -> Result<Self, String> {
        let containers = names(&mut parameters, CONTAINERS.0, CONTAINERS.1, range)?;
        let sweeping = match kind {
            "init" => Sweeping::Init,
            "prepare" => Sweeping::Prepare(SizeSelector::parse(&parameters.need("sizes")?)?),
            "cleanup" => Sweeping::Cleanup,
            "dispose" => Sweeping::Dispose,
            other => return Err(format!("work type={other:?} is not known")),
        };
        let objects = match sweeping {
            Sweeping::Prepare(_) | Sweeping::Cleanup => names(&mut parameters, OBJECTS.0, OBJECTS.1, range)?,
            // One for each container.
            Sweeping::Init | Sweeping::Dispose => {
                parameters.leave(&["objects", "oprefix", "osuffix"]);
                Names { prefix: String::new(), numbers: Range { lower: 1, upper: 1 }, suffix: String::new() }
            }
        };
        parameters.leave(&FOR_OTHERS);
        content(&mut parameters)?;
        parameters.only("createContainer", "false")?;
        parameters.only("deleteContainer", "false")?;
        parameters.finish()?;
        Ok(Self { sweeping, containers, objects })
    }
}

fn range(text: &str) -> Result<Range, String> {
    match Selector::parse(text)? {
        Selector::Range(range) => Ok(range),
        _ => Err(format!("{text:?} is not r(a,b), which is what a work of this type goes through")),
    }
}

impl Source for Sweep {
    fn next(&self, seat: &mut Seat) -> Option<Operation> {
        let (index, of) = (seat.index as u64, seat.of as u64);
        // Divided as in COSBench: buckets among workers where the work is about buckets, otherwise the objects of each
        // bucket.
        let (containers, objects) = match self.sweeping {
            Sweeping::Init | Sweeping::Dispose => (self.containers.numbers.part(index, of)?, self.objects.numbers),
            Sweeping::Prepare(_) | Sweeping::Cleanup => {
                (self.containers.numbers, self.objects.numbers.part(index, of)?)
            }
        };
        let (container, object) = (seat.position / objects.len(), seat.position % objects.len());
        if container >= containers.len() {
            return None;
        }
        let position = seat.position;
        seat.position += 1;
        let bucket = self.containers.name(containers.lower + container);
        let key = self.objects.name(objects.lower + object);
        let target = Target { bucket: bucket.as_str().into(), key, version: 0 };
        Some(match &self.sweeping {
            Sweeping::Init => Operation::CreateBucket { bucket },
            Sweeping::Prepare(sizes) => Operation::Put { target, size: sizes.next(&seat.random, position) },
            Sweeping::Cleanup => Operation::Delete { target },
            Sweeping::Dispose => Operation::DeleteBucket { bucket },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use forebay_env::random::SeededRandom;

    use super::*;

    fn seat(index: usize, of: usize) -> Seat {
        Seat { index, of, random: SeededRandom::new(index as u64 + 1), position: 0, token: None }
    }

    fn parameters(text: &str) -> Parameters {
        Parameters::default().and(text).unwrap()
    }

    fn path(operation: &Operation) -> String {
        match operation {
            Operation::Put { target, .. } | Operation::Get { target, .. } | Operation::Delete { target } => {
                format!("{}/{}", target.bucket, target.key)
            }
            Operation::CreateBucket { bucket } | Operation::DeleteBucket { bucket } => bucket.clone(),
            other => format!("{other:?}"),
        }
    }

    fn all(sweep: &Sweep, workers: usize) -> Vec<String> {
        let mut paths = Vec::new();
        for index in 0..workers {
            let mut seat = seat(index, workers);
            paths.extend(std::iter::from_fn(|| sweep.next(&mut seat)).map(|operation| path(&operation)));
        }
        paths.sort();
        paths
    }

    #[test]
    fn workers_together_prepare_each_object_of_each_container_once() {
        let text = "cprefix=s3-;containers=r(1,2);oprefix=o;objects=r(3,9);sizes=c(64)KB";
        let sweep = Sweep::new("prepare", parameters(text)).unwrap();
        let expected: Vec<_> = (1..=2).flat_map(|c| (3..=9).map(move |o| format!("s3-{c}/o{o}"))).collect();
        for workers in [1, 2, 3, 20] {
            assert_eq!(all(&sweep, workers), expected, "{workers}");
        }
    }

    #[test]
    fn containers_are_made_and_disposed_of_once() {
        for kind in ["init", "dispose"] {
            let sweep = Sweep::new(kind, parameters("containers=r(1,3)")).unwrap();
            assert_eq!(all(&sweep, 2), ["mycontainers1", "mycontainers2", "mycontainers3"]);
        }
    }

    #[test]
    fn operations_come_in_their_ratios_and_from_their_share() {
        let division = Division::Object;
        let step = |kind, ratio, text| Step::new(kind, ratio, division, 2, parameters(text)).unwrap();
        let steps = Steps::new(vec![
            step("read", 80, "containers=c(1);objects=u(1,10)"),
            step("write", 20, "containers=c(1);objects=r(11,20);sizes=c(1)KB"),
        ]);
        let (steps, mut seat, mut counts) = (steps.unwrap(), seat(1, 2), BTreeMap::<String, i32>::new());
        for _ in 0..10_000 {
            let operation = steps.next(&mut seat).unwrap();
            if let Operation::Put { size, .. } = operation {
                assert_eq!(size, 1000);
            }
            *counts.entry(path(&operation)).or_default() += 1;
        }
        // The second of two workers has the second half of each range.
        let expected: Vec<_> =
            [16, 17, 18, 19, 20, 6, 7, 8, 9, 10].iter().map(|o| format!("mycontainers1/myobjects{o}")).collect();
        let mut sorted = expected.clone();
        sorted.sort();
        assert_eq!(counts.keys().cloned().collect::<Vec<_>>(), sorted);
        let reads: i32 = (6..=10).map(|o| counts[&format!("mycontainers1/myobjects{o}")]).sum();
        assert!((7800..8200).contains(&reads), "{reads}");
    }

    #[test]
    fn what_is_unknown_or_missing_is_refused_by_name() {
        let step = |kind, ratio, text: &str| Step::new(kind, ratio, Division::Object, 4, parameters(text)).unwrap_err();
        let good = "containers=c(1);objects=r(1,10)";
        for (error, named) in [
            (step("read", 100, "objects=r(1,10)"), "containers"),
            (step("read", 100, "containers=c(1)"), "objects"),
            (step("write", 100, good), "sizes"),
            (step("copy", 100, good), "copy"),
            (step("read", 101, good), "ratio=101"),
            (step("read", 100, &format!("{good};colour=red")), "colour=red"),
            (step("write", 100, &format!("{good};sizes=c(1)KB;content=zero")), "content=zero"),
            (step("write", 100, &format!("{good};sizes=c(1)KB;hashCheck=maybe")), "hashCheck=maybe"),
            (step("read", 100, "containers=c(1);objects=r(1,3)"), "workers=4"),
            (step("read", 100, "containers=c(1);objects=q(1,3)"), "q(1,3)"),
            (Sweep::new("prepare", parameters("containers=u(1,2);objects=r(1,2);sizes=c(1)B")).unwrap_err(), "u(1,2)"),
            (Sweep::new("prepare", parameters("containers=r(1,2);objects=r(1,2)")).unwrap_err(), "sizes"),
            (Steps::new(Vec::new()).unwrap_err(), "sum to 0"),
            (Parameters::default().and("containers").unwrap_err(), "containers"),
        ] {
            assert!(error.contains(named) && !error.contains('\n'), "{named}: {error}");
        }
    }
}
