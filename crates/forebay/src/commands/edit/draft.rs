//! The file that the editor opens.

use std::process::Command;

use tempfile::NamedTempFile;

use crate::commands::waiting::Interruptible;
use crate::failure::Failure;

/// Where there is no other wish.
const EDITOR_DEFAULT: &str = "vi";

/// A file for the owner only, which goes away unless it holds somebody's work.
pub(super) struct Draft {
    file: NamedTempFile,
    text: String,
}

impl Draft {
    pub(super) fn new(text: &str) -> Result<Self, Failure> {
        // For the owner only: that is how such files are made.
        let file = tempfile::Builder::new().prefix("forebay-policies-").suffix(".jsonc").tempfile();
        let file = file.map_err(|error| Failure::of("temporary file", &error))?;
        let mut draft = Self { file, text: String::new() };
        draft.write(text)?;
        Ok(draft)
    }

    pub(super) fn write(&mut self, text: &str) -> Result<(), Failure> {
        std::fs::write(self.file.path(), text).map_err(|error| self.trouble(&error))?;
        self.text = text.to_owned();
        Ok(())
    }

    /// Opens the editor; answers what it has left.
    pub(super) fn edit(&self) -> Result<String, Failure> {
        let editor = editor();
        // Ctrl-C in the editor is the editor's.
        let _deaf = Interruptible::new()?;
        // By the shell, as git does it: an editor may come with arguments (`code --wait`).
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{editor} \"$@\"")).arg(&editor).arg(self.file.path());
        let status = command.status().map_err(|error| Failure::of(&format!("editor {editor:?}"), &error))?;
        if !status.success() {
            return Err(Failure::Failed(format!("editor {editor:?}: {status}: nothing was applied")));
        }
        // By its name: many editors replace the old file by a new one.
        std::fs::read_to_string(self.file.path()).map_err(|error| self.trouble(&error))
    }

    /// Keeps the file if there is work in it, and says where.
    pub(super) fn keep_after(self, failure: Failure) -> Failure {
        let kept = std::fs::read_to_string(self.file.path()).is_ok_and(|text| text != self.text || self.is_refused());
        let Some((_, path)) = kept.then(|| self.file.keep().ok()).flatten() else {
            return failure;
        };
        let more = format!("; your text is kept in {}", path.display());
        match failure {
            Failure::Refused(line) => Failure::Refused(line + &more),
            Failure::Failed(line) => Failure::Failed(line + &more),
            Failure::Interrupted(line) => Failure::Interrupted(line + &more),
            Failure::NobodyReads => Failure::NobodyReads,
        }
    }

    /// Whether the text is the user's, written back with an error on top.
    fn is_refused(&self) -> bool {
        self.text.starts_with(super::rules::ERROR_MARK)
    }

    fn trouble(&self, error: &std::io::Error) -> Failure {
        Failure::of(&self.file.path().display().to_string(), error)
    }
}

fn editor() -> String {
    let wish = |name| std::env::var(name).ok().filter(|text| !text.trim().is_empty());
    wish("VISUAL").or_else(|| wish("EDITOR")).unwrap_or_else(|| EDITOR_DEFAULT.to_owned())
}
