use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn pieces_are_what_was_put_and_do_not_touch(
        writes in prop::collection::vec((0u64..400, 1usize..60, any::<u8>()), 1..30),
    ) {
        let data: Vec<(u64, Vec<u8>)> =
            writes.iter().map(|(offset, len, byte)| (*offset, vec![*byte; *len])).collect();
        let mut model: Vec<Option<u8>> = vec![None; 500];
        let mut pieces = Pieces::default();
        for (offset, bytes) in &data {
            pieces.put(*offset, bytes);
            model[*offset as usize..*offset as usize + bytes.len()].fill(Some(bytes[0]));
        }
        let mut seen: Vec<Option<u8>> = vec![None; 500];
        let mut end = 0;
        for (offset, bytes) in &pieces.0 {
            prop_assert!(end == 0 || *offset > end, "{offset} touches {end}");
            end = offset + bytes.len() as u64;
            for (place, byte) in seen[*offset as usize..].iter_mut().zip(bytes.iter()) {
                *place = Some(*byte);
            }
        }
        prop_assert_eq!(seen, model);
    }
}
