//! What the screen is about, apart from how it is drawn and where keys come from.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::feed::Snapshot;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Panel {
    Requests,
    Reads,
    Backlog,
    Disks,
    /// Of a worker of a cluster alone.
    Cluster,
    UnderStores,
    Jobs,
    Notices,
}

impl Panel {
    pub(super) const ALL: [Self; 8] = [
        Self::Requests,
        Self::Reads,
        Self::Backlog,
        Self::Disks,
        Self::Cluster,
        Self::UnderStores,
        Self::Jobs,
        Self::Notices,
    ];

    /// The panel that is `places` further, wrapping around at the ends.
    fn step(self, places: isize, is_in_cluster: bool) -> Self {
        let shown: Vec<_> = Self::ALL.into_iter().filter(|panel| is_in_cluster || *panel != Self::Cluster).collect();
        let here = shown.iter().position(|panel| *panel == self).unwrap_or_default() as isize;
        shown[(here + places).rem_euclid(shown.len() as isize) as usize]
    }
}

pub(super) struct App {
    pub(super) endpoint: String,
    pub(super) snapshot: Option<Snapshot>,
    /// Why the last look brought nothing.
    pub(super) trouble: Option<String>,
    pub(super) panel: Panel,
    /// Lines of the selected panel above its edge; drawing brings it down to what there is.
    pub(super) scroll: usize,
    pub(super) is_paused: bool,
    pub(super) shows_help: bool,
    pub(super) is_colourful: bool,
    pub(super) is_over: bool,
}

impl App {
    pub(super) fn new(endpoint: &str) -> Self {
        Self {
            endpoint: endpoint.to_owned(),
            snapshot: None,
            trouble: None,
            panel: Panel::Requests,
            scroll: 0,
            is_paused: false,
            shows_help: false,
            is_colourful: false,
            is_over: false,
        }
    }

    /// Takes what a look has brought, or why it has brought nothing. The old picture stays until there is a new one.
    pub(super) fn arrived(&mut self, look: Result<Snapshot, String>) {
        match look {
            Ok(snapshot) => {
                self.trouble = None;
                if !self.is_paused {
                    self.snapshot = Some(snapshot);
                }
            }
            Err(trouble) => self.trouble = Some(trouble),
        }
    }

    pub(super) fn pressed(&mut self, key: KeyEvent) {
        if key.kind == KeyEventKind::Release {
            return;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('q') => self.is_over = true,
            KeyCode::Char('c') if control => self.is_over = true,
            KeyCode::Char('?' | 'h') => self.shows_help = !self.shows_help,
            KeyCode::Esc if self.shows_help => self.shows_help = false,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Tab | KeyCode::Right => self.select(1),
            KeyCode::BackTab | KeyCode::Left => self.select(-1),
            KeyCode::Down => self.scroll += 1,
            KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
            _ => {}
        }
    }

    fn select(&mut self, places: isize) {
        let is_in_cluster = self.snapshot.as_ref().is_some_and(|snapshot| snapshot.cluster.is_some());
        self.panel = self.panel.step(places, is_in_cluster);
        self.scroll = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::{in_cluster, snapshot};
    use super::*;

    fn press(app: &mut App, codes: &[KeyCode]) {
        codes.iter().for_each(|code| app.pressed(KeyEvent::from(*code)));
    }

    #[test]
    fn keys_walk_around_the_panels_and_start_at_the_top_of_each() {
        let mut app = App::new("");
        press(&mut app, &[KeyCode::Down, KeyCode::Down, KeyCode::Up]);
        assert_eq!(app.scroll, 1);
        press(&mut app, &[KeyCode::Left]);
        assert_eq!((app.panel, app.scroll), (Panel::Notices, 0));
        press(&mut app, &[KeyCode::Tab, KeyCode::Right]);
        assert_eq!(app.panel, Panel::Reads);
        press(&mut app, &[KeyCode::BackTab, KeyCode::Up]);
        assert_eq!((app.panel, app.scroll), (Panel::Requests, 0));
    }

    #[test]
    fn keys_pass_over_the_panel_of_a_cluster_where_there_is_none() {
        let mut app = App::new("");
        for (snapshot, next) in [(snapshot(), Panel::UnderStores), (in_cluster(), Panel::Cluster)] {
            app.arrived(Ok(snapshot));
            app.panel = Panel::Disks;
            press(&mut app, &[KeyCode::Tab]);
            assert_eq!(app.panel, next);
        }
    }

    #[test]
    fn help_goes_as_it_came_and_q_ends() {
        let mut app = App::new("");
        press(&mut app, &[KeyCode::Char('?')]);
        assert!(app.shows_help);
        press(&mut app, &[KeyCode::Esc, KeyCode::Esc, KeyCode::Char('c')]);
        assert!(!app.shows_help && !app.is_over);
        app.pressed(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(app.is_over);
        app.is_over = false;
        press(&mut app, &[KeyCode::Char('q')]);
        assert!(app.is_over);
    }

    #[test]
    fn a_pause_keeps_the_picture_and_trouble_is_told_all_the_same() {
        let mut app = App::new("");
        app.arrived(Ok(snapshot()));
        press(&mut app, &[KeyCode::Char('p')]);
        let mut later = snapshot();
        later.overview.now_ms += 1;
        app.arrived(Ok(later.clone()));
        assert_eq!(app.snapshot, Some(snapshot()));
        app.arrived(Err("gone".into()));
        assert_eq!((app.snapshot.as_ref(), app.trouble.as_deref()), (Some(&snapshot()), Some("gone")));
        press(&mut app, &[KeyCode::Char('p')]);
        app.arrived(Ok(later.clone()));
        assert_eq!((app.snapshot, app.trouble), (Some(later), None));
    }
}
