//! The picture.

use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Clear, Paragraph};
use ratatui::{Frame, Terminal};

use super::panels;
use super::state::{App, Panel};
use crate::commands::{age, escaped};

/// The smallest screen that all panels fit on: what terminals have had since there are any. On a smaller one the
/// selected panel has it all.
const WHOLE: (u16, u16) = (80, 24);

const HELP: [&str; 8] = [
    "q          end",
    "tab, → ←   next panel, panel before",
    "↓ ↑        scroll in the selected panel",
    "p          hold the picture, continue",
    "?          this help",
    "",
    "Space: █ pinned, ▒ evictable, · free.",
    "err/s counts answers of 500 and above.",
];

pub(super) fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let area = frame.area();
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]).areas(area);
    frame.render_widget(Paragraph::new(headline(app)).style(emphasis()), head);
    if let Some(is_in_cluster) = app.snapshot.as_ref().map(|snapshot| snapshot.cluster.is_some()) {
        if area.width < WHOLE.0 || area.height < WHOLE.1 {
            draw_panel(frame, app, app.panel, body);
        } else {
            for (panel, place) in places(body, is_in_cluster) {
                draw_panel(frame, app, panel, place);
            }
        }
    }
    frame.render_widget(Paragraph::new("q end  tab ←→ panel  ↑↓ scroll  p pause  ? help"), foot);
    if app.shows_help {
        draw_help(frame, body);
    }
    if !app.is_colourful {
        strip_colours(frame);
    }
}

/// What stands out without colour.
fn emphasis() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn headline(app: &App) -> String {
    let mut parts = vec![format!("forebay top {}", escaped(&app.endpoint))];
    if let Some(snapshot) = &app.snapshot {
        let overview = &snapshot.overview;
        parts.push(format!(
            "{} up {}",
            escaped(&overview.version),
            age(overview.now_ms.saturating_sub(overview.started_ms))
        ));
        if let Some(sample) = &overview.sample {
            parts.push(format!("cpu {:.1}", sample.cpu));
        }
        if !overview.notices.is_empty() {
            let notices = overview.notices.len();
            parts.push(format!("{notices} {}", if notices == 1 { "notice" } else { "notices" }));
        }
    }
    // In front: nothing below it is of this moment.
    if let Some(trouble) = &app.trouble {
        parts.insert(0, format!("RECONNECTING: {}", escaped(trouble)));
    }
    if app.is_paused {
        parts.insert(0, "PAUSED".to_owned());
    }
    parts.join("  ")
}

fn places(body: Rect, is_in_cluster: bool) -> Vec<(Panel, Rect)> {
    // Exact on the smallest screen, in proportion on larger ones. Lines of the last ones are long: they lie above each
    // other.
    let (heights, long): (&[u16], &[Panel]) = match is_in_cluster {
        true => (&[5, 4, 4, 3, 3, 3], &[Panel::Cluster, Panel::UnderStores, Panel::Jobs, Panel::Notices]),
        false => (&[7, 6, 3, 3, 3], &[Panel::UnderStores, Panel::Jobs, Panel::Notices]),
    };
    let rows = Layout::vertical(heights.iter().copied().map(Constraint::Fill)).split(body);
    let halves = |row: Rect| Layout::horizontal([Constraint::Fill(1); 2]).areas::<2>(row);
    let [requests, reads] = halves(rows[0]);
    let [backlog, disks] = halves(rows[1]);
    let short = [(Panel::Requests, requests), (Panel::Reads, reads), (Panel::Backlog, backlog), (Panel::Disks, disks)];
    short.into_iter().chain(long.iter().copied().zip(rows[2..].iter().copied())).collect()
}

fn draw_panel(frame: &mut Frame<'_>, app: &mut App, panel: Panel, place: Rect) {
    let Some(snapshot) = &app.snapshot else { return };
    let is_selected = app.panel == panel;
    let block = Block::bordered().title(panels::title(panel));
    let block = if is_selected { block.border_style(emphasis()).title_style(emphasis()) } else { block };
    let inside = block.inner(place);
    let lines = panels::lines(panel, snapshot, usize::from(inside.width));
    let hidden = lines.len().saturating_sub(usize::from(inside.height));
    let block = if hidden > 0 {
        block.title_bottom(Line::from(format!("{} lines", lines.len())).right_aligned())
    } else {
        block
    };
    let mut above = 0;
    if is_selected {
        app.scroll = app.scroll.min(hidden);
        above = app.scroll;
    }
    // Cut here: the widget counts lines in 16 bits.
    let shown: Vec<_> = lines.into_iter().skip(above).take(usize::from(inside.height)).collect();
    frame.render_widget(Paragraph::new(Text::from(shown)).block(block), place);
}

fn draw_help(frame: &mut Frame<'_>, body: Rect) {
    let (width, height) = (44.min(body.width), (HELP.len() as u16 + 2).min(body.height));
    let place = Rect::new(body.x + (body.width - width) / 2, body.y + (body.height - height) / 2, width, height);
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(HELP.join("\n")).block(Block::bordered().title("Help")), place);
}

fn strip_colours(frame: &mut Frame<'_>) {
    for cell in &mut frame.buffer_mut().content {
        cell.set_fg(ratatui::style::Color::Reset).set_bg(ratatui::style::Color::Reset);
    }
}

/// One frame as text.
pub(super) fn text(app: &mut App, (width, height): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen in memory does not fail");
    terminal.draw(|frame| draw(frame, app)).expect("a screen in memory does not fail");
    let buffer = terminal.backend().buffer();
    let line = |y: u16| {
        let mut line = String::new();
        let mut x = 0;
        while x < width {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            // A wide character fills the cell behind it too.
            x += (Line::from(symbol).width() as u16).max(1);
        }
        line.trim_end().to_owned() + "\n"
    };
    (0..height).map(line).collect()
}

#[cfg(test)]
pub(super) mod tests;
