use std::os::unix::fs::PermissionsExt;

use super::*;

fn settings(directory: &Path, bytes_max: u64, files_max: u32) -> FileSettings {
    FileSettings { path: directory.join("log"), bytes_max, files_max }
}

fn lines(numbers: std::ops::Range<u32>) -> Vec<String> {
    numbers.map(|number| format!("line {number}\n")).collect()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[track_caller]
fn write(file: &mut RotatingFile, lines: &[String]) {
    let outcome = file.write(lines);
    assert!(outcome.error.is_none() && outcome.lost == 0, "{outcome:?}");
}

#[test]
fn a_full_file_is_renamed_between_two_lines_and_the_oldest_goes() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), 14, 2);
    let mut file = RotatingFile::open(settings.clone()).unwrap();
    write(&mut file, &lines(0..3));
    write(&mut file, &lines(3..8));
    assert_eq!(read(&settings.path), "line 6\nline 7\n");
    assert_eq!(read(&numbered(&settings.path, 1)), "line 4\nline 5\n");
    assert_eq!(read(&numbered(&settings.path, 2)), "line 2\nline 3\n");
    assert!(!numbered(&settings.path, 3).exists());
    let mode = std::fs::metadata(&settings.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, MODE);
}

#[test]
fn a_line_longer_than_a_file_is_kept_whole() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), 4, 1);
    let mut file = RotatingFile::open(settings.clone()).unwrap();
    write(&mut file, &lines(0..2));
    assert_eq!(read(&settings.path), "line 1\n");
    assert_eq!(read(&numbered(&settings.path, 1)), "line 0\n");
}

#[test]
fn without_a_size_nothing_is_renamed() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), 0, 2);
    let mut file = RotatingFile::open(settings.clone()).unwrap();
    write(&mut file, &lines(0..1000));
    assert_eq!(read(&settings.path), lines(0..1000).concat());
}

#[test]
fn a_file_goes_on_where_it_ended_and_after_a_torn_line() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), 1 << 20, 2);
    std::fs::write(&settings.path, "whole\nto").unwrap();
    let mut file = RotatingFile::open(settings.clone()).unwrap();
    write(&mut file, &lines(0..2));
    assert_eq!(read(&settings.path), "whole\nto\nline 0\nline 1\n");
    let mut file = RotatingFile::open(settings.clone()).unwrap();
    write(&mut file, &lines(2..3));
    assert_eq!(read(&settings.path), "whole\nto\nline 0\nline 1\nline 2\n");
}

#[test]
fn after_a_rename_by_somebody_else_a_new_file_is_begun_when_told() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), 0, 2);
    let mut file = RotatingFile::open(settings.clone()).unwrap();
    write(&mut file, &lines(0..1));
    let elsewhere = directory.path().join("elsewhere");
    std::fs::rename(&settings.path, &elsewhere).unwrap();
    write(&mut file, &lines(1..2));
    file.reopen().unwrap();
    write(&mut file, &lines(2..3));
    assert_eq!(read(&elsewhere), "line 0\nline 1\n");
    assert_eq!(read(&settings.path), "line 2\n");
}

#[test]
fn a_file_that_cannot_be_renamed_goes_on_growing() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), 8, 1);
    let mut file = RotatingFile::open(settings.clone()).unwrap();
    // A directory with something in it is not replaced by a file.
    std::fs::create_dir_all(numbered(&settings.path, 1).join("full")).unwrap();
    let outcome = file.write(&lines(0..3));
    assert!(outcome.error.is_some());
    assert_eq!(outcome.lost, 0);
    assert_eq!(read(&settings.path), lines(0..3).concat());
}

#[test]
fn a_full_disk_loses_lines_and_says_how_many() {
    // Every write to this device fails as on a full disk. It is no regular file, so it is put in place here.
    let full = OpenOptions::new().append(true).open("/dev/full").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut file = RotatingFile::open(settings(directory.path(), 0, 1)).unwrap();
    let regular = std::mem::replace(&mut file.file, full);
    let outcome = file.write(&lines(0..3));
    assert_eq!(outcome.lost, 3);
    assert_eq!(outcome.error.unwrap().kind(), ErrorKind::StorageFull);
    file.file = regular;
    write(&mut file, &lines(3..4));
    assert_eq!(read(&directory.path().join("log")).trim_start(), "line 3\n");
}

#[test]
fn what_is_no_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let opened = RotatingFile::open(FileSettings { path: directory.path().to_owned(), bytes_max: 0, files_max: 1 });
    assert_eq!(opened.err().unwrap().kind(), ErrorKind::InvalidInput);
    let opened = RotatingFile::open(settings(&directory.path().join("absent"), 0, 1));
    assert_eq!(opened.err().unwrap().kind(), ErrorKind::NotFound);
}
