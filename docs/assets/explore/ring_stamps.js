// The stamps of the explorable ring, and constants for words and loads. A stamp has the layout of the package's
// `protocol`, but fits into 32 bits, because indexes are small here.
const RingStamps = (() => {
  const NOTHING = -1; // a word that was never written, a load that is not done yet
  const NEVER_WRITTEN = -2; // the loaded value of a word that was never written
  const NOBODY = 0;
  const [HELD, OWNER_SHIFT, INDEX_SHIFT] = [1, 1, 11];
  const OWNER_BITS = 1023 << OWNER_SHIFT;
  const [WORD_1, WORD_2, MASS] = [0, 1, 2];
  const [FIRST, SECOND] = [2, 3];

  const publishedStamp = (index) => (index + 1) << INDEX_SHIFT;
  const heldStamp = (index, owner) => publishedStamp(index) | (owner << OWNER_SHIFT) | HELD;
  const indexOf = (stamp) => (stamp >> INDEX_SHIFT) - 1;
  const ownerOf = (stamp) => (stamp & OWNER_BITS) >> OWNER_SHIFT;
  const isHeld = (stamp) => (stamp & HELD) !== 0;
  const abandoned = (stamp) => stamp & ~OWNER_BITS;
  const mayBeRead = (stamp) => !isHeld(stamp) && stamp > 0;

  return {
    ...{ NOTHING, NEVER_WRITTEN, NOBODY, WORD_1, WORD_2, MASS, FIRST, SECOND },
    ...{ publishedStamp, heldStamp, indexOf, ownerOf, isHeld, abandoned, mayBeRead },
  };
})();
