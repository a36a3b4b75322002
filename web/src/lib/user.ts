// Who reads the page, and what they may do: nobody sees a button that would be refused.
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { User } from "./types";

export const UserContext = createContext<User>({ name: "", role: "viewer", is_active: true, created_s: 0 });

export function useUser(): User {
  return useContext(UserContext);
}

export function mayChange(user: User, owner: string): boolean {
  return user.role === "admin" || (user.role === "editor" && user.name === owner);
}

export function mayCreate(user: User): boolean {
  return user.role !== "viewer";
}
