//! The document: elements and attributes, and what each inherits.

use std::time::Duration;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::parameters::Parameters;
use super::source::{Division, Step, Steps, Sweep};

/// Most workers of one work. Each is a connection.
const WORKERS_MAX: u64 = 10_000;
/// Failures that a work may have, per million samples. These are COSBench's own numbers.
const FAILURES_MAX_NORMAL: u64 = 200_000;
const MILLION: u64 = 1_000_000;
/// Elements are nested five deep.
const DEPTH_MAX: usize = 8;

/// The contents of a `storage` element. Command line options take precedence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Storage {
    pub(crate) endpoint: Option<String>,
    pub(crate) access_key: Option<String>,
    pub(crate) secret_key: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) stages: Vec<Stage>,
}

#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) name: String,
    pub(crate) works: Vec<Work>,
    /// The pause after its works.
    pub(crate) delay: Duration,
}

#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) name: String,
    pub(crate) workers: usize,
    pub(crate) what: What,
    pub(crate) storage: Storage,
    /// The whole run time, ramps included.
    pub(crate) runtime: Option<Duration>,
    pub(crate) ramp_up: Duration,
    pub(crate) ramp_down: Duration,
    pub(crate) operations: Option<u64>,
    pub(crate) bytes: Option<u64>,
    /// Per million samples.
    pub(crate) failures_max: u64,
}

#[derive(Debug)]
pub(crate) enum What {
    Sweep(Sweep),
    Steps(Steps),
    Delay,
}

/// An element with its attributes and its child elements.
#[derive(Debug)]
struct Element {
    name: String,
    attributes: Vec<(String, String)>,
    inside: Vec<Element>,
}

/// Reads a workload.
///
/// # Errors
/// One line that names the element and what is wrong with it.
pub(crate) fn parse(text: &str) -> Result<Workload, String> {
    let mut root = tree(text)?;
    if root.name != "workload" {
        return Err(format!("<{}> is not <workload>", root.name));
    }
    workload(&mut root).map_err(|problem| problem.replace('\n', " "))
}

fn tree(text: &str) -> Result<Element, String> {
    let mut reader = Reader::from_str(text);
    let mut open: Vec<Element> = Vec::new();
    loop {
        let event = reader.read_event().map_err(|error| format!("at byte {}: {error}", reader.error_position()))?;
        let closed = match event {
            Event::Start(tag) if open.len() < DEPTH_MAX => {
                open.push(element(&tag)?);
                None
            }
            Event::Start(_) => return Err(format!("elements lie in each other more than {DEPTH_MAX} deep")),
            Event::Empty(tag) => Some(element(&tag)?),
            Event::End(_) => open.pop(),
            Event::Eof => return Err("the document ends before </workload>".to_owned()),
            Event::Text(text) if text.iter().any(|byte| !byte.is_ascii_whitespace()) => {
                return Err(format!("there is text between elements: {:?}", String::from_utf8_lossy(&text)));
            }
            Event::DocType(_) | Event::CData(_) | Event::GeneralRef(_) => {
                return Err("only elements and comments are known".to_owned());
            }
            Event::Text(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) => None,
        };
        if let Some(closed) = closed {
            match open.last_mut() {
                Some(parent) => parent.inside.push(closed),
                None => return Ok(closed),
            }
        }
    }
}

fn element(tag: &BytesStart) -> Result<Element, String> {
    let name = String::from_utf8_lossy(tag.name().as_ref()).into_owned();
    let mut attributes = Vec::new();
    for attribute in tag.attributes() {
        let attribute = attribute.map_err(|error| format!("<{name}>: {error}"))?;
        let key = String::from_utf8_lossy(attribute.key.as_ref()).into_owned();
        let raw = String::from_utf8_lossy(&attribute.value).into_owned();
        let value = quick_xml::escape::unescape(&raw).map_err(|error| format!("<{name} {key}=…>: {error}"))?;
        attributes.push((key, value.into_owned()));
    }
    Ok(Element { name, attributes, inside: Vec::new() })
}

impl Element {
    fn take(&mut self, name: &str) -> Option<String> {
        let index = self.attributes.iter().position(|(key, _)| key == name)?;
        Some(self.attributes.swap_remove(index).1)
    }

    fn number(&mut self, name: &str) -> Result<Option<u64>, String> {
        let number = |text: String| text.trim().parse().map_err(|_| format!("{name}={text:?} is not a whole number"));
        self.take(name).map(number).transpose()
    }

    fn seconds(&mut self, name: &str) -> Result<Duration, String> {
        Ok(Duration::from_secs(self.number(name)?.unwrap_or_default()))
    }

    /// Takes out the only child element of a name.
    fn only(&mut self, name: &str) -> Result<Option<Self>, String> {
        let index = self.inside.iter().position(|inside| inside.name == name);
        let found = index.map(|index| self.inside.remove(index));
        match self.inside.iter().any(|inside| inside.name == name) {
            true => Err(format!("<{}> has more than one <{name}>", self.name)),
            false => Ok(found),
        }
    }

    /// All remaining child elements must have this name.
    fn all(&mut self, name: &str) -> Result<Vec<Self>, String> {
        let inside = std::mem::take(&mut self.inside);
        match inside.iter().find(|element| element.name != name) {
            Some(other) => Err(format!("<{}> in <{}> is not known", other.name, self.name)),
            None => Ok(inside),
        }
    }

    /// # Errors
    /// One line that names what nothing has asked for.
    fn finish(&self) -> Result<(), String> {
        if let Some((name, value)) = self.attributes.first() {
            return Err(format!("<{} {name}={value:?}>: {name} is not known or not supported", self.name));
        }
        match self.inside.first() {
            Some(inside) => Err(format!("<{}> in <{}> is not known", inside.name, self.name)),
            None => Ok(()),
        }
    }
}

/// What an element passes to its child elements.
#[derive(Clone)]
struct Inherited {
    parameters: Parameters,
    storage: Storage,
}

impl Inherited {
    /// Takes `config`, `storage` and `auth` out of an element.
    fn and(&self, element: &mut Element) -> Result<Self, String> {
        let parameters = self.parameters.and(&element.take("config").unwrap_or_default())?;
        if let Some(mut auth) = element.only("auth")? {
            // For S3, the keys are in the storage.
            let kind = auth.take("type").unwrap_or_default();
            let config = auth.take("config").unwrap_or_default();
            if kind != "none" || !config.is_empty() {
                return Err(format!("<auth type={kind:?}> is not supported: the keys of S3 stand in <storage>"));
            }
            auth.finish()?;
        }
        let storage = element.only("storage")?.map(storage).transpose()?;
        Ok(Self { parameters, storage: storage.unwrap_or_else(|| self.storage.clone()) })
    }
}

fn storage(mut element: Element) -> Result<Storage, String> {
    let kind = element.take("type").unwrap_or_default();
    if kind != "s3" && kind != "sio" {
        return Err(format!("<storage type={kind:?}> is not supported: s3 and sio are"));
    }
    let mut parameters = Parameters::default().and(&element.take("config").unwrap_or_default())?;
    element.finish()?;
    let mut given = |name: &str| parameters.take(name).filter(|value| !value.is_empty());
    let milliseconds = |text: String| {
        text.parse().map(Duration::from_millis).map_err(|_| format!("<storage>: timeout={text} is not a number"))
    };
    let storage = Storage {
        endpoint: given("endpoint"),
        access_key: given("accesskey"),
        secret_key: given("secretkey"),
        region: given("aws_region").or_else(|| given("region")),
        timeout: given("timeout").map(milliseconds).transpose()?,
    };
    for proxy in ["proxyhost", "proxyport"] {
        parameters.only(proxy, "").map_err(|problem| format!("<storage> {problem}"))?;
    }
    parameters.only("path_style_access", "true").map_err(|problem| format!("<storage> {problem}"))?;
    parameters.finish().map_err(|problem| format!("<storage> {problem}"))?;
    Ok(storage)
}

fn workload(root: &mut Element) -> Result<Workload, String> {
    let name = root.take("name").filter(|name| !name.is_empty()).ok_or("<workload> has no name")?;
    // For people only.
    root.take("description");
    let inherited = Inherited { parameters: Parameters::default(), storage: Storage::default() }.and(root)?;
    let mut workflow = root.only("workflow")?.ok_or("<workload> has no <workflow>")?;
    root.finish()?;
    let inherited = inherited.and(&mut workflow)?;
    let stages = workflow.all("workstage")?;
    workflow.finish()?;
    if stages.is_empty() {
        return Err("<workflow> has no <workstage>".to_owned());
    }
    let stages = stages.into_iter().map(|element| stage(element, &inherited));
    Ok(Workload { name, stages: stages.collect::<Result<_, _>>()? })
}

fn stage(mut element: Element, inherited: &Inherited) -> Result<Stage, String> {
    let name = element.take("name").filter(|name| !name.is_empty()).ok_or("<workstage> has no name")?;
    let context = |problem: String| format!("stage {name:?}: {problem}");
    let delay = element.seconds("closuredelay").map_err(context)?;
    let inherited = inherited.and(&mut element).map_err(context)?;
    let works = element.all("work").map_err(context)?;
    element.finish().map_err(context)?;
    if works.is_empty() {
        return Err(context("it has no <work>".to_owned()));
    }
    let works = works.into_iter().map(|element| work(element, &inherited).map_err(context));
    Ok(Stage { works: works.collect::<Result<_, _>>()?, name, delay })
}

fn work(mut element: Element, inherited: &Inherited) -> Result<Work, String> {
    let kind = element.take("type").unwrap_or_else(|| "normal".to_owned());
    let is_normal = kind == "normal";
    let name = element.take("name").or_else(|| (!is_normal).then(|| kind.clone())).ok_or("<work> has no name")?;
    let context = |problem: String| format!("work {name:?}: {problem}");
    let parsed = work_of(&mut element, &kind, name.clone(), inherited).map_err(context)?;
    element.finish().map_err(context)?;
    let is_endless = parsed.runtime.is_none() && parsed.operations.is_none() && parsed.bytes.is_none();
    match is_normal && is_endless {
        true => Err(context("it never ends: give runtime, totalOps or totalBytes".to_owned())),
        false => Ok(parsed),
    }
}

fn work_of(element: &mut Element, kind: &str, name: String, inherited: &Inherited) -> Result<Work, String> {
    let inherited = inherited.and(element)?;
    let is_normal = kind == "normal";
    let workers = match (element.number("workers")?, kind) {
        (_, "delay") => 1,
        (Some(workers), _) if (1..=WORKERS_MAX).contains(&workers) => workers,
        (Some(workers), _) => return Err(format!("workers={workers}: give 1 to {WORKERS_MAX}")),
        (None, _) => return Err("it has no workers".to_owned()),
    };
    let division = Division::parse(&element.take("division").unwrap_or_else(|| "none".to_owned()))?;
    let default = if is_normal { FAILURES_MAX_NORMAL } else { 0 };
    let failures_max = element.number("afr")?.unwrap_or(default);
    if failures_max > MILLION {
        return Err(format!("afr={failures_max} is more than {MILLION}"));
    }
    // How often COSBench takes a snapshot for its own charts. The charts here have their own resolution.
    let interval = element.number("interval")?;
    if interval == Some(0) {
        return Err("interval=0 is not a number of seconds above 0".to_owned());
    }
    let (ramp_up, ramp_down) = (element.seconds("rampup")?, element.seconds("rampdown")?);
    let runtime = element.number("runtime")?.filter(|seconds| *seconds > 0).map(Duration::from_secs);
    let (operations, bytes) = (element.number("totalOps")?, element.number("totalBytes")?);
    Ok(Work {
        name,
        workers: workers as usize,
        what: what(element, kind, division, workers, &inherited)?,
        storage: inherited.storage,
        // The config of special works says what they do, and they end when it is done.
        runtime: runtime.filter(|_| is_normal).map(|runtime| ramp_up + runtime + ramp_down),
        ramp_up: if is_normal { ramp_up } else { Duration::ZERO },
        ramp_down: if is_normal { ramp_down } else { Duration::ZERO },
        operations: operations.filter(|number| is_normal && *number > 0),
        bytes: bytes.filter(|number| is_normal && *number > 0),
        failures_max,
    })
}

fn what(
    element: &mut Element,
    kind: &str,
    division: Division,
    workers: u64,
    inherited: &Inherited,
) -> Result<What, String> {
    match kind {
        "normal" => {
            let operations = element.all("operation")?;
            let steps = operations.into_iter().map(|element| step(element, division, workers, inherited));
            let steps = steps.filter_map(Result::transpose).collect::<Result<_, _>>()?;
            Steps::new(steps).map(What::Steps)
        }
        "delay" => {
            let operations = element.all("operation")?;
            match operations.iter().find(|inside| inside.attributes != [("type".to_owned(), "delay".to_owned())]) {
                Some(_) => Err("a work of type delay has only <operation type=\"delay\"/>".to_owned()),
                None => Ok(What::Delay),
            }
        }
        kind => Sweep::new(kind, inherited.parameters.clone()).map(What::Sweep),
    }
}

/// Operations with a ratio of 0 are left out, as COSBench does, after they have been checked.
fn step(mut element: Element, division: Division, workers: u64, inherited: &Inherited) -> Result<Option<Step>, String> {
    let kind = element.take("type").ok_or("<operation> has no type")?;
    let ratio = element.number("ratio")?.unwrap_or(100);
    let division = element.take("division").map_or(Ok(division), |text| Division::parse(&text))?;
    // A name for the statistics of COSBench.
    element.take("id");
    let parameters = inherited.parameters.and(&element.take("config").unwrap_or_default())?;
    element.finish()?;
    let step = Step::new(&kind, ratio, division, workers, parameters)
        .map_err(|problem| format!("operation {kind:?}: {problem}"))?;
    Ok((ratio > 0).then_some(step))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"<?xml version="1.0" encoding="UTF-8" ?>
<workload name="s3-sample" description="sample benchmark for s3">
  <storage type="s3" config="accesskey=AK;secretkey=a&amp;b;proxyhost=;proxyport=;endpoint=http://127.0.0.1:9000;timeout=5000" />
  <workflow config="cprefix=s3testqwer">
    <workstage name="init"><work type="init" workers="1" config="containers=r(1,2)" /></workstage>
    <workstage name="prepare" closuredelay="3">
      <work type="prepare" workers="2" config="containers=r(1,2);objects=r(1,10);sizes=c(64)KB" />
    </workstage>
    <!-- the part that counts -->
    <workstage name="main">
      <work name="main" workers="8" runtime="30" rampup="5" interval="5">
        <operation type="read" ratio="80" config="containers=u(1,2);objects=u(1,10)" />
        <operation type="write" ratio="20" config="containers=u(1,2);objects=u(11,20);sizes=c(64)KB" />
      </work>
      <work name="more" workers="1" totalOps="10" totalBytes="0" afr="0"><operation type="list" config="containers=c(1)" /></work>
    </workstage>
    <workstage name="delay" closuredelay="1"><work name="delay" type="delay"><operation type="delay"/></work></workstage>
    <workstage name="cleanup"><work type="cleanup" workers="1" config="containers=r(1,2);objects=r(1,20)" /></workstage>
    <workstage name="dispose"><work type="dispose" workers="1" config="containers=r(1,2)" /></workstage>
  </workflow>
</workload>"#;

    #[test]
    fn a_workload_is_read_with_all_its_stages() {
        let workload = parse(SAMPLE).unwrap();
        assert_eq!(workload.name, "s3-sample");
        let names: Vec<_> = workload.stages.iter().map(|stage| stage.name.as_str()).collect();
        assert_eq!(names, ["init", "prepare", "main", "delay", "cleanup", "dispose"]);
        assert_eq!(workload.stages[1].delay, Duration::from_secs(3));
        let [main, more] = workload.stages[2].works.as_slice() else { panic!("two works") };
        assert_eq!(
            (main.workers, main.runtime, main.ramp_up),
            (8, Some(Duration::from_secs(35)), Duration::from_secs(5))
        );
        assert_eq!((main.failures_max, main.operations), (200_000, None));
        assert_eq!((more.runtime, more.operations, more.bytes, more.failures_max), (None, Some(10), None, 0));
        assert_eq!(workload.stages[1].works[0].failures_max, 0);
        let storage = &main.storage;
        assert_eq!((storage.secret_key.as_deref(), storage.timeout), (Some("a&b"), Some(Duration::from_secs(5))));
        assert!(matches!(workload.stages[3].works[0].what, What::Delay));
    }

    #[test]
    fn storage_of_a_work_comes_before_that_of_the_workload() {
        let own = r#"runtime="30" rampup="5" interval="5"><storage type="sio" config="endpoint=http://h:1"/>"#;
        let workload = parse(&SAMPLE.replace(r#"runtime="30" rampup="5" interval="5">"#, own)).unwrap();
        let endpoints: Vec<_> = workload.stages[2].works.iter().map(|work| work.storage.endpoint.clone()).collect();
        assert_eq!(endpoints, [Some("http://h:1".to_owned()), Some("http://127.0.0.1:9000".to_owned())]);
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        for (old, new, named) in [
            ("<workflow", "<flow", "workflow"),
            (r#"runtime="30""#, r#"runtime="30" driver="d1""#, "driver"),
            (r#"runtime="30""#, r#"runtime="x""#, "runtime"),
            (r#"runtime="30""#, "", "never ends"),
            (r#"workers="8""#, r#"workers="0""#, "workers=0"),
            (r#"workers="8""#, "", "workers"),
            (r#"type="list""#, r#"type="mwrite""#, "mwrite"),
            (r#"type="init""#, r#"type="minit""#, "minit"),
            (r#"ratio="80""#, r#"ratio="70""#, "sum to 90"),
            (r#"rampup="5""#, r#"division="key""#, "division"),
            (r#"afr="0""#, r#"afr="1000001""#, "afr"),
            (r#"type="s3""#, r#"type="swift""#, "swift"),
            ("proxyhost=;", "proxyhost=proxy;", "proxyhost"),
            ("timeout=5000", "timeout=5s", "timeout"),
            ("timeout=5000", "no_verify_ssl=true", "no_verify_ssl"),
            (r#"name="main" workers"#, r#"name="main" trigger="x" workers"#, "trigger"),
            ("<workflow", r#"<auth type="swauth" config="a=b"/><workflow"#, "swauth"),
            ("cprefix=s3testqwer", "cprefix", "cprefix"),
            ("<!-- the part that counts -->", "text", "text"),
            ("<!-- the part that counts -->", "<workstag name='x'/>", "workstag"),
            ("</workload>", "", "ends before"),
            ("<?xml", "<!DOCTYPE a [<!ENTITY b 'c'>]><?xml", "only elements"),
        ] {
            let text = SAMPLE.replacen(old, new, 1);
            assert_ne!(text, SAMPLE, "{old}");
            let error = parse(&text).expect_err(named);
            assert!(error.contains(named) && !error.contains('\n'), "{named}: {error}");
        }
    }
}
