use super::*;
use proptest::prelude::*;

fn rights(text: &str, name: &str) -> Rights {
    Access::parse(text).unwrap().of(name).unwrap().clone()
}

#[test]
fn a_line_says_who_may_do_what() {
    let text = "\n# nobody\n\
                ann 1000:1000,27,4 # the first\n\
                \tBackup.Example   34:35  squash=none read-only\tpath=/home//all/ \n";
    let ann = Rights { groups: vec![27, 4], ..Rights::new(1000, 1000) };
    assert_eq!(rights(text, "ann"), ann);
    let backup = Rights {
        subtree: Some("/home/all".into()),
        read_only: true,
        squash: Squash::None,
        ..Rights::new(34, 35)
    };
    assert_eq!(rights(text, "backup.example"), backup);
    assert_eq!(Access::parse(text).unwrap().of("nobody"), None);
    assert_eq!(Access::parse(""), Ok(Access::default()));
    assert_eq!(rights("a 0:0 path=/", "a").subtree, Some("/".into()));
    assert_eq!(rights("a 0:0 squash=root", "a").squash, Squash::Root);
}

#[test]
fn what_makes_no_sense_is_said_with_its_line() {
    for (line, field) in [
        ("ann", "ann"),
        ("*.example 1:1", "*.example"),
        (". 1:1", "."),
        ("a/b 1:1", "a/b"),
        ("ann 1000", "1000"),
        ("ann 1:", "1:"),
        ("ann +1:1", "+1:1"),
        ("ann 1:1,", "1:1,"),
        ("ann 1:1,x", "1:1,x"),
        ("ann 4294967295:1", "4294967295:1"),
        ("ann 1:4294967296", "1:4294967296"),
        ("ann 1:1 path=home", "path=home"),
        ("ann 1:1 path=/a/../b", "path=/a/../b"),
        ("ann 1:1 path=", "path="),
        ("ann 1:1 read-only=yes", "read-only=yes"),
        ("ann 1:1 read-only=", "read-only="),
        ("ann 1:1 squash", "squash"),
        ("ann 1:1 squash=some", "squash=some"),
        ("ann 1:1 read-write", "read-write"),
        ("ann 1:1 read-only read-only", "read-only"),
        ("b 1:1", "b"),
    ] {
        let error = Access::parse(&format!("# first\nB 1:1\n{line}\n")).unwrap_err();
        assert_eq!((error.line, &error.field[..]), (3, field), "{line}");
    }
}

fn name() -> impl Strategy<Value = String> {
    "[a-z0-9_-]{1,20}(\\.[a-z0-9-]{1,9}){0,3}"
}

fn any_rights() -> impl Strategy<Value = Rights> {
    let number = || 0..u32::MAX;
    let squash = prop_oneof![Just(Squash::All), Just(Squash::Root), Just(Squash::None)];
    let groups = proptest::collection::vec(number(), 0..4);
    let subtree = proptest::option::of("(/[a-zA-Z0-9_.-]{1,6}x){1,3}");
    (number(), number(), groups, subtree, any::<bool>(), squash).prop_map(
        |(user, group, groups, subtree, read_only, squash)| Rights {
            user,
            group,
            groups,
            subtree: subtree.map(Into::into),
            read_only,
            squash,
        },
    )
}

fn line(name: &str, rights: &Rights) -> String {
    let mut line = format!("{name} {}:{}", rights.user, rights.group);
    for group in &rights.groups {
        line += &format!(",{group}");
    }
    if let Some(subtree) = &rights.subtree {
        line += &format!(" path={}", subtree.display());
    }
    if rights.read_only {
        line += " read-only";
    }
    line + match rights.squash {
        Squash::All => "\n",
        Squash::Root => " squash=root # said\n",
        Squash::None => " squash=none\n",
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        all in proptest::collection::hash_map(name(), any_rights(), 0..6),
    ) {
        let text: String = all.iter().map(|(name, rights)| line(name, rights)).collect();
        prop_assert_eq!(Access::parse(&text), Ok(Access(all)));
    }

    #[test]
    fn any_text_is_a_file_or_none(text in "[ -~\n\t#=:,/]{0,200}|\\PC{0,80}") {
        if let Ok(Access(all)) = Access::parse(&text) {
            let lines: String = all.iter().map(|(name, rights)| line(name, rights)).collect();
            prop_assert_eq!(Access::parse(&lines), Ok(Access(all)));
        }
    }
}
