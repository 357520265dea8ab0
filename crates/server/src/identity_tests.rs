//! Claims, right and wrong.

use super::*;
use std::os::unix::fs::PermissionsExt;

fn after_a_kill(path: &Path) -> Identities {
    Identities::open(Some(path)).unwrap()
}

#[test]
fn a_claim_is_its_process_and_users_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("attached");
    let first = after_a_kill(&path);
    assert!(!first.awaits, "nobody was here before");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let (one, other) = (first.draw().unwrap(), first.draw().unwrap());
    assert_ne!(one, other);
    let said = first.identity(one, Whose::User(7));
    let next = after_a_kill(&path);
    assert!(next.awaits);
    assert_eq!(next.recognize(&said, Whose::User(7)), Some(one));
    assert_eq!(next.recognize(&said, Whose::User(0)), None, "another user");
    let claims = [
        Identity { client: hexadecimal(other), ..said.clone() },
        Identity { service: said.service + 1, ..said.clone() },
        Identity { proof: first.identity(other, Whose::User(7)).proof, ..said.clone() },
        Identity { proof: "0".repeat(32), ..said.clone() },
        Identity { proof: said.proof.to_uppercase() + " ", ..said.clone() },
        Identity { client: "é".repeat(16), ..said.clone() },
    ];
    for claim in claims {
        assert_eq!(next.recognize(&claim, Whose::User(7)), None, "{claim:?}");
    }
    let elsewhere = after_a_kill(&dir.path().join("other"));
    assert_eq!(elsewhere.recognize(&said, Whose::User(7)), None, "another pool");
}

#[test]
fn who_shows_a_certificate_comes_back_as_the_same_with_the_same_rights() {
    let identities = Identities::open(None).unwrap();
    let ann = Whose::Certified { name: "ann", user: 7, root: 1, read_only: false };
    let said = identities.identity(5, ann);
    assert_eq!(identities.recognize(&said, ann), Some(5));
    for other in [
        Whose::User(7),
        Whose::Certified { name: "ben", user: 7, root: 1, read_only: false },
        Whose::Certified { name: "ann", user: 8, root: 1, read_only: false },
        Whose::Certified { name: "ann", user: 7, root: 2, read_only: false },
        Whose::Certified { name: "ann", user: 7, root: 1, read_only: true },
    ] {
        assert_eq!(identities.recognize(&said, other), None, "{other:?}");
        assert_eq!(identities.recognize(&identities.identity(5, other), ann), None, "{other:?}");
    }
}

#[test]
fn what_is_open_is_shown_by_its_own_proof_alone() {
    let identities = Identities::open(None).unwrap();
    let flags = Some(Flags { read: true, ..Flags::default() });
    let proof = identities.proof(1, 2, 3, flags);
    assert_eq!(proof, identities.proof(1, 2, 3, flags));
    let writes = Some(Flags { read: true, write: true, ..Flags::default() });
    let others = [
        identities.proof(2, 2, 3, flags),
        identities.proof(1, 3, 3, flags),
        identities.proof(1, 2, 4, flags),
        identities.proof(1, 2, 3, writes),
        identities.proof(1, 2, 3, None),
        Identities::open(None).unwrap().proof(1, 2, 3, flags),
    ];
    assert!(!others.contains(&proof));
}

#[test]
fn who_is_remembered_is_known_over_several_services() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("attached");
    let first = after_a_kill(&path);
    let (early, late) = (first.identity(1, Whose::User(7)), first.identity(2, Whose::User(7)));
    assert!(!first.remembers(&early), "it is attached to this very one");
    let second = after_a_kill(&path);
    assert!(second.remembers(&early) && second.remembers(&late));
    let early = second.identity(1, Whose::User(7));
    assert!(second.forget());
    assert!(!second.remembers(&late), "it was not back in time");
    let third = after_a_kill(&path);
    assert!(third.remembers(&early) && !third.remembers(&late));
    assert_eq!(third.recognize(&late, Whose::User(7)), Some(2), "who it is, is known");
    let early = third.identity(1, Whose::User(7));
    third.end();
    let fourth = after_a_kill(&path);
    assert!(!fourth.awaits && !fourth.remembers(&early), "nobody comes back to an end in order");
}

#[test]
fn a_file_that_makes_no_sense_makes_everybody_a_stranger() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("attached");
    let said = after_a_kill(&path).identity(1, Whose::User(7));
    for text in ["", "{", "{\"key\":\"1\",\"service\":1,\"forgotten\":0,\"ended\":false}"] {
        std::fs::write(&path, text).unwrap();
        let next = after_a_kill(&path);
        assert!(!next.awaits && next.recognize(&said, Whose::User(7)).is_none());
    }
}
