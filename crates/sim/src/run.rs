//! A run from its plan to its report.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Once};
use std::time::Duration;

use forebay_env::Clock;
use futures::future::{join, join_all};
use tokio_util::sync::CancellationToken;

use crate::checks;
use crate::life::Ending;
use crate::machine::Machine;
use crate::plan::{Change, Fault, Life, Plan};
use crate::world::World;

/// A promise that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenPromise {
    pub what: String,
}

/// The result of a run.
#[derive(Debug)]
pub struct Report {
    /// Of every operation, every jump of the clock and every answer: equal for equal plans.
    pub hash: u64,
    pub failure: Option<BrokenPromise>,
    /// The trace, when it was asked for.
    pub lines: Vec<String>,
    /// What a checker could not decide.
    pub undecided: u32,
    /// Whether a store was so full that reclaim gave segments back.
    pub has_reclaimed: bool,
}

thread_local! {
    static RUNNING: Cell<bool> = const { Cell::new(false) };
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A panic in a task that nobody waits for is one, too. Panics outside of runs go where they went before.
fn catch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if RUNNING.get() {
                PANIC.with_borrow_mut(|panic| panic.get_or_insert_with(|| info.to_string()).truncate(2000));
            } else {
                before(info);
            }
        }));
    });
}

/// Runs a plan in this thread.
pub fn run(plan: &Plan, keeps_lines: bool) -> Report {
    catch_panics();
    let settle = Duration::from_secs(plan.config.settle_s);
    let world = World::new(plan.seed, plan.keys(), plan.config.is_shared(), settle, keeps_lines);
    RUNNING.set(true);
    let result = catch_unwind(AssertUnwindSafe(|| go(plan, &world)));
    RUNNING.set(false);
    if let Some(panic) = PANIC.take() {
        world.broken(panic);
    }
    let failure = world.what_is_broken().map(|what| BrokenPromise { what });
    let has_reclaimed = world.reclaimed.load(Ordering::Relaxed);
    Report { hash: world.hash(), failure, lines: world.lines(), undecided: result.unwrap_or(0), has_reclaimed }
}

fn go(plan: &Plan, world: &Arc<World>) -> u32 {
    let clock = Arc::clone(&world.clock);
    let runtime = tokio::runtime::Builder::new_current_thread().on_thread_park(move || clock.advance()).build();
    let runtime = runtime.expect("a runtime without drivers needs nothing of the system");
    runtime.block_on(async {
        tokio::select! {
            biased;
            undecided = live(plan, world) => undecided,
            () = world.clock.run() => unreachable!("a clock runs for ever"),
        }
    })
}

async fn live(plan: &Plan, world: &Arc<World>) -> u32 {
    let machine = Machine::new(Arc::clone(world), plan.config.clone());
    let others: Vec<_> = (1..plan.config.machines).map(|number| machine.beside(number)).collect();
    let mut machines: Vec<_> = [machine].into_iter().chain(others).collect();
    let lives = join_all(machines.iter().map(|machine| live_on(plan, machine))).await;
    let last = machines.pop().filter(|_| lives.iter().all(|is_left| *is_left));
    let Some(last) = last else { return 0 };
    let moved = CancellationToken::new();
    let leave = join_all(machines.iter().map(|machine| checks::hand_over(machine, moved.clone())));
    join(leave, checks::last(&last, moved.clone())).await.1
}

/// Lives all lives of one machine. Returns whether there is anything left to check.
async fn live_on(plan: &Plan, machine: &Machine) -> bool {
    let world = &machine.world;
    let lives = plan.lives.iter().enumerate().filter(|(_, life)| life.machine == machine.number);
    let mut lives = lives.peekable();
    while let Some((number, life)) = lives.next() {
        world.note(format_args!("life {number} begins"));
        let is_lost = lives.peek().is_some_and(|(_, next)| next.changes.iter().any(Change::is_replace));
        match machine.live(life, is_lost).await {
            Ending::AsPlanned => {}
            Ending::Refused if world.is_flipped() => return false,
            Ending::Refused if machine.engine.has_hindered() => {}
            Ending::Refused if !has_disk_faults(life) => {
                world.broken("the worker does not start, although nothing is damaged".to_owned());
            }
            Ending::Refused => {}
        }
        if world.what_is_broken().is_some() {
            return false;
        }
        // A restart takes a moment, or longer than any request is in flight.
        world.clock.sleep(Duration::from_millis(world.below(2000) * (1 + world.below(2) * 30))).await;
    }
    true
}

fn has_disk_faults(life: &Life) -> bool {
    life.faults.iter().any(|(_, fault)| !matches!(fault, Fault::Weather(_)))
}
