/**
 * Names on the demo page: of the visitor, and of the client that this page is when its Run buttons call tools.
 *
 * The names that other clients give themselves are shown unchanged, as text.
 */

/** Who draws with the pointer, and who presses Run. */
export const VISITOR = "You";
/** In the calls that this page sends to the relay. */
export const OWN_CLIENT = "tabrelay demo page";
